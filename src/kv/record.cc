#include "kv/record.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"

namespace kvern::kv {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::array<char, 8> kMagic = {'K', 'v', 'e', 'r', 'n', 'R', 'e', 'c'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kHasMac = 1;  // the only flag
constexpr size_t kPayloadAlignment = 64;

// As in the record; docs/record-format.md.
struct RawHeader {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t flags;
  uint64_t record_bytes;
  uint64_t block_bytes;
  uint64_t checksum_low, checksum_high;
  Digest mac;
  NamespaceHash name_space;
  RecordKey parent;
  uint64_t first_position;
  uint32_t group;
  uint32_t kind;
  uint32_t window;
  uint32_t block_tokens;
  uint32_t num_tokens;
  uint32_t fingerprint_bytes;
};
constexpr size_t kFixedBytes = sizeof(RawHeader);
constexpr size_t kVersionAt = offsetof(RawHeader, version);
constexpr size_t kChecksumAt = offsetof(RawHeader, checksum_low);
constexpr size_t kMacAt = offsetof(RawHeader, mac);
constexpr size_t kAfterMac = offsetof(RawHeader, name_space);
static_assert(kFixedBytes == 176 && kChecksumAt == 32 && kMacAt == 48 && kAfterMac == 80);

uint64_t HeaderBytes(uint32_t num_tokens, uint32_t fingerprint_bytes) {
  const uint64_t used =
      kFixedBytes + uint64_t{num_tokens} * sizeof(TokenId) + uint64_t{fingerprint_bytes};
  return (used + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment;
}

// REQUIRES: bytes.size() >= offset + sizeof(T).
template <typename T>
T LoadAt(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

RawHeader LoadHeader(std::span<const std::byte> record) { return LoadAt<RawHeader>(record, 0); }

// Also true of bytes that end within the magic.
bool HasMagic(std::span<const std::byte> bytes) {
  const size_t num_compared = std::min(bytes.size(), kMagic.size());
  return std::ranges::equal(bytes.first(num_compared),
                            std::as_bytes(std::span(kMagic)).first(num_compared));
}

// `payload` is what follows `head` in the record: two spans, so that it need not be copied there.
Hash128 Checksum(std::span<const std::byte> head, std::span<const std::byte> payload) {
  Hasher128 hasher;
  hasher.Add(head.first(kChecksumAt));
  hasher.Add(head.subspan(kMacAt));
  hasher.Add(payload);
  return hasher.Digest();
}

Digest Mac(std::span<const std::byte> head, std::span<const std::byte> payload, const MacKey& key) {
  return Blake2b256({head.first(kChecksumAt), head.subspan(kAfterMac), payload}, &key);
}

RecordError Refuse(RecordRefusal refusal, std::string message) {
  return {.refusal = refusal, .field = {}, .message = "record: " + std::move(message)};
}

// That the bytes start with a record of this version, and end where it ends.
std::optional<RecordError> CheckExtent(std::span<const std::byte> record) {
  if (!HasMagic(record)) {
    return Refuse(RecordRefusal::kBadMagic, "does not start with KvernRec");
  }
  if (record.size() >= kVersionAt + sizeof(uint32_t)) {
    const auto version = LoadAt<uint32_t>(record, kVersionAt);
    if (version != kVersion) {
      return Refuse(RecordRefusal::kOtherVersion,
                    fmt::format("format version {}, this build reads {}", version, kVersion));
    }
  }
  if (record.size() < kFixedBytes) {
    return Refuse(RecordRefusal::kTruncated, fmt::format("ends after {} bytes", record.size()));
  }
  const uint64_t record_bytes = LoadHeader(record).record_bytes;
  if (record.size() == record_bytes) return std::nullopt;
  return Refuse(
      record.size() < record_bytes ? RecordRefusal::kTruncated : RecordRefusal::kTrailingBytes,
      fmt::format("has {} bytes, its length says {}", record.size(), record_bytes));
}

std::optional<RecordError> CheckSeals(std::span<const std::byte> record, const MacKey* mac_key) {
  const RawHeader header = LoadHeader(record);
  const Hash128 expected{.high = header.checksum_high, .low = header.checksum_low};
  if (Checksum(record, {}) != expected) {
    return Refuse(RecordRefusal::kDamaged, "wrong checksum");
  }
  if (mac_key == nullptr) return std::nullopt;
  if ((header.flags & kHasMac) == 0) {
    return Refuse(RecordRefusal::kNotAuthentic, "has no MAC, and a key is set");
  }
  if (!EqualInConstantTime(Mac(record, {}, *mac_key), header.mac)) {
    return Refuse(RecordRefusal::kNotAuthentic, "wrong MAC: forged, or made with another key");
  }
  return std::nullopt;
}

std::variant<RecordView, RecordError> Parse(std::span<const std::byte> record) {
  const auto malformed = [](std::string message) {
    return Refuse(RecordRefusal::kMalformed, std::move(message));
  };
  const RawHeader header = LoadHeader(record);
  if ((header.flags & ~kHasMac) != 0) return malformed("unknown flags");
  if ((header.flags & kHasMac) == 0 && header.mac != Digest{}) {
    return malformed("a MAC without its flag");
  }
  if (header.kind > static_cast<uint32_t>(GroupKind::kState)) return malformed("unknown kind");
  if (header.num_tokens == 0 || header.num_tokens > header.block_tokens) {
    return malformed(
        fmt::format("{} tokens in a block of {}", header.num_tokens, header.block_tokens));
  }
  const uint64_t header_bytes = HeaderBytes(header.num_tokens, header.fingerprint_bytes);
  if (header_bytes >= record.size() || header.block_bytes != record.size() - header_bytes) {
    return malformed("its lengths do not add up");
  }
  auto rest = record.first(header_bytes).subspan(kFixedBytes);
  const auto token_bytes = rest.first(header.num_tokens * sizeof(TokenId));
  rest = rest.subspan(token_bytes.size());
  const auto fingerprint = rest.first(header.fingerprint_bytes);
  rest = rest.subspan(fingerprint.size());
  if (!IsCanonicalFingerprint(fingerprint)) return malformed("its fingerprint is not canonical");
  if (std::ranges::any_of(rest, [](std::byte b) { return b != std::byte{0}; })) {
    return malformed("padding that is not zero");
  }
  return RecordView{.fingerprint = fingerprint,
                    .name_space = header.name_space,
                    .layout = {.group = GroupId(header.group),
                               .kind = GroupKind(header.kind),
                               .window = header.window,
                               .block_tokens = header.block_tokens,
                               .block_bytes = header.block_bytes},
                    .parent = header.parent,
                    .first_position = header.first_position,
                    .token_bytes = token_bytes,
                    .payload = record.subspan(header_bytes)};
}

std::string Describe(const RecordLayout& layout) {
  return fmt::format("group {}, kind {}, window {}, {} tokens, {} bytes",
                     static_cast<uint32_t>(layout.group), static_cast<uint32_t>(layout.kind),
                     layout.window, layout.block_tokens, layout.block_bytes);
}

RecordError RefuseTokens(const RecordView& record, std::span<const TokenId> expected) {
  const std::vector<TokenId> tokens = record.Tokens();
  if (tokens.size() != expected.size()) {
    return Refuse(RecordRefusal::kOtherTokens,
                  fmt::format("has {} tokens, expected {}", tokens.size(), expected.size()));
  }
  const size_t i = std::ranges::mismatch(tokens, expected).in1 - tokens.begin();
  return Refuse(
      RecordRefusal::kOtherTokens,
      fmt::format("token {} at position {}, expected {}", static_cast<uint32_t>(tokens[i]),
                  record.first_position + i, static_cast<uint32_t>(expected[i])));
}

}  // namespace

NamespaceHash NamespaceHashOf(std::span<const std::byte> canonical) {
  return {Blake2b256({canonical})};
}

RecordKey RecordKeyOf(const RecordKey& parent, const Digest& fingerprint,
                      const NamespaceHash& name_space, std::span<const TokenId> tokens) {
  return {Blake2b256({parent.digest, fingerprint, name_space.digest, std::as_bytes(tokens)})};
}

Digest RecordAddressOf(const RecordKey& key, GroupId group) {
  return Blake2b256({key.digest, std::as_bytes(std::span(&group, 1))});
}

RecordLayout RecordLayout::Of(GroupId group, const GroupSpec& spec) {
  return {.group = group,
          .kind = spec.kind,
          .window = spec.window,
          .block_tokens = spec.block_tokens,
          .block_bytes = spec.block_bytes};
}

RecordKey RecordIdentity::Key() const {
  return RecordKeyOf(parent, fingerprint.digest(), name_space, tokens);
}

size_t RecordHeaderBytes(const RecordIdentity& identity) {
  return HeaderBytes(static_cast<uint32_t>(identity.tokens.size()),
                     static_cast<uint32_t>(identity.fingerprint.bytes().size()));
}

std::vector<std::byte> EncodeRecordHeader(const RecordIdentity& identity,
                                          std::span<const std::byte> payload,
                                          const MacKey* mac_key) {
  const RecordLayout& layout = identity.layout;
  const auto tokens = std::as_bytes(identity.tokens);
  const auto fingerprint = identity.fingerprint.bytes();
  CHECK(!payload.empty() && payload.size() == layout.block_bytes);
  CHECK(!tokens.empty() && identity.tokens.size() <= layout.block_tokens);
  std::vector<std::byte> head(RecordHeaderBytes(identity));
  RawHeader header = {.magic = kMagic,
                      .version = kVersion,
                      .flags = mac_key == nullptr ? 0 : kHasMac,
                      .record_bytes = head.size() + payload.size(),
                      .block_bytes = layout.block_bytes,
                      .checksum_low = 0,
                      .checksum_high = 0,
                      .mac = {},
                      .name_space = identity.name_space,
                      .parent = identity.parent,
                      .first_position = identity.first_position,
                      .group = static_cast<uint32_t>(layout.group),
                      .kind = static_cast<uint32_t>(layout.kind),
                      .window = layout.window,
                      .block_tokens = layout.block_tokens,
                      .num_tokens = static_cast<uint32_t>(identity.tokens.size()),
                      .fingerprint_bytes = static_cast<uint32_t>(fingerprint.size())};
  std::memcpy(head.data(), &header, sizeof(header));
  std::ranges::copy(fingerprint, std::ranges::copy(tokens, head.begin() + kFixedBytes).out);
  // The checksum covers the MAC, so that damage to it is told from forgery.
  if (mac_key != nullptr) header.mac = Mac(head, payload, *mac_key);
  std::memcpy(head.data(), &header, sizeof(header));
  const Hash128 checksum = Checksum(head, payload);
  header.checksum_low = checksum.low;
  header.checksum_high = checksum.high;
  std::memcpy(head.data(), &header, sizeof(header));
  return head;
}

std::vector<std::byte> EncodeRecord(const RecordIdentity& identity,
                                    std::span<const std::byte> payload, const MacKey* mac_key) {
  std::vector<std::byte> record = EncodeRecordHeader(identity, payload, mac_key);
  record.insert(record.end(), payload.begin(), payload.end());
  return record;
}

std::string_view ToString(RecordRefusal refusal) {
  switch (refusal) {
    case RecordRefusal::kTruncated:
      return "truncated";
    case RecordRefusal::kBadMagic:
      return "bad_magic";
    case RecordRefusal::kOtherVersion:
      return "other_version";
    case RecordRefusal::kTrailingBytes:
      return "trailing_bytes";
    case RecordRefusal::kDamaged:
      return "damaged";
    case RecordRefusal::kNotAuthentic:
      return "not_authentic";
    case RecordRefusal::kMalformed:
      return "malformed";
    case RecordRefusal::kOtherNumerics:
      return "other_numerics";
    case RecordRefusal::kOtherFingerprint:
      return "other_fingerprint";
    case RecordRefusal::kOtherNamespace:
      return "other_namespace";
    case RecordRefusal::kOtherLayout:
      return "other_layout";
    case RecordRefusal::kOtherPosition:
      return "other_position";
    case RecordRefusal::kOtherParent:
      return "other_parent";
    case RecordRefusal::kOtherTokens:
      return "other_tokens";
  }
  return {};
}

std::vector<TokenId> RecordView::Tokens() const {
  std::vector<TokenId> tokens(token_bytes.size() / sizeof(TokenId));
  std::memcpy(tokens.data(), token_bytes.data(), token_bytes.size());
  return tokens;
}

std::variant<RecordView, RecordError> ReadRecord(std::span<const std::byte> record,
                                                 const MacKey* mac_key) {
  if (auto refused = CheckExtent(record)) return *std::move(refused);
  if (auto refused = CheckSeals(record, mac_key)) return *std::move(refused);
  return Parse(record);
}

std::optional<RecordError> CheckIdentity(const RecordView& record, const RecordIdentity& expected) {
  if (auto difference = FindDifference(record.fingerprint, expected.fingerprint)) {
    const bool is_numerics = difference->field == kNumericsField;
    RecordError refused =
        Refuse(is_numerics ? RecordRefusal::kOtherNumerics : RecordRefusal::kOtherFingerprint,
               std::move(difference->message));
    refused.field = std::move(difference->field);
    return refused;
  }
  if (record.name_space != expected.name_space) {
    return Refuse(RecordRefusal::kOtherNamespace, "belongs to another namespace");
  }
  if (record.layout != expected.layout) {
    return Refuse(
        RecordRefusal::kOtherLayout,
        fmt::format("{}; expected {}", Describe(record.layout), Describe(expected.layout)));
  }
  if (record.first_position != expected.first_position) {
    return Refuse(RecordRefusal::kOtherPosition,
                  fmt::format("starts at position {}, expected {}", record.first_position,
                              expected.first_position));
  }
  if (record.parent != expected.parent) {
    return Refuse(RecordRefusal::kOtherParent, "follows another text");
  }
  if (!std::ranges::equal(record.token_bytes, std::as_bytes(expected.tokens))) {
    return RefuseTokens(record, expected.tokens);
  }
  return std::nullopt;
}

std::variant<RecordView, RecordError> DecodeRecord(std::span<const std::byte> record,
                                                   const RecordIdentity& expected,
                                                   const MacKey* mac_key) {
  auto read = ReadRecord(record, mac_key);
  if (const auto* view = std::get_if<RecordView>(&read)) {
    if (auto refused = CheckIdentity(*view, expected)) return *std::move(refused);
  }
  return read;
}

std::optional<uint64_t> PeekRecordBytes(std::span<const std::byte> start) {
  constexpr size_t kLengthAt = offsetof(RawHeader, record_bytes);
  if (start.size() < kLengthAt + sizeof(uint64_t)) return std::nullopt;
  if (!HasMagic(start) || LoadAt<uint32_t>(start, kVersionAt) != kVersion) return std::nullopt;
  return LoadAt<uint64_t>(start, kLengthAt);
}

}  // namespace kvern::kv
