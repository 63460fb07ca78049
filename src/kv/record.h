// Records: the form in which a block leaves RAM, and the checks that it passes to come back (K12).
//
// A record is one block of one group with all that says what it is: RecordIdentity. A writer states
// the identity; a reader states the one that it expects, and gets the payload only if every part
// agrees. Whatever fails is a RecordError with a reason to count: a miss, never an answer.
//
// A checksum detects damage, not forgery: anybody can make a record with a good checksum. Where
// others can write to a tier, give a MacKey; a record without a good MAC is then refused.
//
// Nothing here trusts a byte: no input makes it read outside, allocate by a length that it has not
// checked, or abort. Bytes are borrowed, never owned. Thread-safe. docs/record-format.md has the
// format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kv/digest.h"
#include "kv/fingerprint.h"
#include "kvern/ids.h"
#include "kvern/kv_report.h"
#include "kvern/kv_store.h"

namespace kvern::kv {

// Stands for all text up to and with a block, under one fingerprint and namespace. The groups of a
// model share it.
struct RecordKey {
  Digest digest{};  // all zeros: the parent of a first block

  friend auto operator<=>(const RecordKey&, const RecordKey&) = default;
};

// Stands for whoever may share the block: adapter and tenant salt, for example.
struct NamespaceHash {
  Digest digest{};

  friend auto operator<=>(const NamespaceHash&, const NamespaceHash&) = default;
};

// `canonical` is the namespace, spelled so that different ones differ (typed, length-prefixed).
NamespaceHash NamespaceHashOf(std::span<const std::byte> canonical);

RecordKey RecordKeyOf(const RecordKey& parent, const Digest& fingerprint,
                      const NamespaceHash& name_space, std::span<const TokenId> tokens);

// Where in a tier the record of one group's block lies.
Digest RecordAddressOf(const RecordKey& key, GroupId group);

// Which group a block is of, and its shape.
struct RecordLayout {
  GroupId group{};
  GroupKind kind = GroupKind::kFull;
  uint32_t window = 0;        // tokens
  uint32_t block_tokens = 0;  // that a full block has
  uint64_t block_bytes = 0;

  static RecordLayout Of(GroupId group, const GroupSpec& spec);
  friend bool operator==(const RecordLayout&, const RecordLayout&) = default;
};

struct RecordIdentity {
  const Fingerprint& fingerprint;
  NamespaceHash name_space;
  RecordLayout layout;
  RecordKey parent;             // of the block before this one
  uint64_t first_position = 0;  // of tokens[0]
  // 1 to block_tokens; fewer in a block that is partly filled. A state is the one after the last.
  std::span<const TokenId> tokens;

  RecordKey Key() const;
};

// The bytes that lie before the payload. Padded so that payloads keep the alignment of records.
size_t RecordHeaderBytes(const RecordIdentity& identity);

// The header of a record, to be written before its payload (a gathering write copies no block).
// REQUIRES: payload.size() == identity.layout.block_bytes > 0; 1 to block_tokens tokens.
std::vector<std::byte> EncodeRecordHeader(const RecordIdentity& identity,
                                          std::span<const std::byte> payload,
                                          const MacKey* mac_key = nullptr);

// The same, and the payload after it: a whole record.
std::vector<std::byte> EncodeRecord(const RecordIdentity& identity,
                                    std::span<const std::byte> payload,
                                    const MacKey* mac_key = nullptr);

struct RecordError {
  RecordRefusal refusal;
  std::string field;    // kOtherNumerics, kOtherFingerprint: the field's name; else empty
  std::string message;  // one line for people
};

// A record that is whole. Points into its bytes.
struct RecordView {
  std::span<const std::byte> fingerprint;  // canonical
  NamespaceHash name_space;
  RecordLayout layout;
  RecordKey parent;
  uint64_t first_position = 0;
  std::span<const std::byte> token_bytes;  // 4 each, little-endian
  std::span<const std::byte> payload;      // block_bytes

  std::vector<TokenId> Tokens() const;
};

// Checks that `record` is whole (and authentic, if a key is given), not whose it is: for an import,
// which learns the tokens from the record. CheckIdentity() must follow. Without a key, a MAC is not
// looked at.
std::variant<RecordView, RecordError> ReadRecord(std::span<const std::byte> record,
                                                 const MacKey* mac_key = nullptr);

// Nothing, if the record is of this identity.
std::optional<RecordError> CheckIdentity(const RecordView& record, const RecordIdentity& expected);

// Both: the view of a record that is whole, authentic and of this identity.
std::variant<RecordView, RecordError> DecodeRecord(std::span<const std::byte> record,
                                                   const RecordIdentity& expected,
                                                   const MacKey* mac_key = nullptr);

// How long the record that starts here says it is, to cut a stream of records; at least 24 bytes
// must be there. Untrusted. None where no record of this version starts: ReadRecord() says why.
std::optional<uint64_t> PeekRecordBytes(std::span<const std::byte> start);

}  // namespace kvern::kv
