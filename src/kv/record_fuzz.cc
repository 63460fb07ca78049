// Decodes any bytes as a record: as they are, and with a good checksum so that the parser sees
// them too. What is accepted must encode to the very same bytes.
#include "kv/record.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"

namespace kvern::kv {
namespace {

// What tests/data/kv/make_record_goldens.py signs with.
MacKey GoldenKey() {
  MacKey key;
  for (size_t i = 0; i < key.bytes.size(); ++i) key.bytes[i] = std::byte(128 + i);
  return key;
}

void CheckResult(const std::variant<RecordView, RecordError>& result,
                 const RecordIdentity& expected) {
  if (const auto* view = std::get_if<RecordView>(&result)) {
    CHECK(!view->payload.empty() && view->payload.size() == view->layout.block_bytes);
    CHECK(!view->Tokens().empty() && view->Tokens().size() <= view->layout.block_tokens);
    if (const auto refused = CheckIdentity(*view, expected)) CHECK(!refused->message.empty());
    return;
  }
  CHECK(!std::get_if<RecordError>(&result)->message.empty());
}

// Length and checksum as the format wants them.
void Reseal(std::vector<std::byte>& record) {
  const uint64_t bytes = record.size();
  std::memcpy(&record[16], &bytes, sizeof(bytes));
  Hasher128 hasher;
  hasher.Add(std::span(record).first(32));
  hasher.Add(std::span(record).subspan(48));
  const Hash128 hash = hasher.Digest();
  std::memcpy(&record[32], &hash.low, sizeof(hash.low));
  std::memcpy(&record[40], &hash.high, sizeof(hash.high));
}

// The input as the payload of a record.
void RoundTrip(std::span<const std::byte> payload, const Fingerprint& fingerprint) {
  if (payload.empty()) return;
  const TokenId tokens[] = {TokenId{5}, TokenId(static_cast<uint32_t>(payload[0]))};
  const RecordIdentity identity{
      .fingerprint = fingerprint,
      .name_space = NamespaceHashOf(payload),
      .layout = {.group = {}, .block_tokens = 16, .block_bytes = payload.size()},
      .parent = {},
      .first_position = 0,
      .tokens = tokens};
  const MacKey key = GoldenKey();
  const auto record = EncodeRecord(identity, payload, &key);
  const auto decoded = DecodeRecord(record, identity, &key);
  const auto* view = std::get_if<RecordView>(&decoded);
  CHECK(view != nullptr && std::ranges::equal(view->payload, payload));
}

void TryAll(std::span<const std::byte> input) {
  static const Fingerprint fingerprint = *Fingerprint::Make(3, {{"weights", "none"}});
  const TokenId tokens[] = {TokenId{1}};
  const RecordIdentity expected{.fingerprint = fingerprint,
                                .name_space = {},
                                .layout = {},
                                .parent = {},
                                .first_position = 0,
                                .tokens = tokens};
  const MacKey key = GoldenKey();
  (void)PeekRecordBytes(input);
  CheckResult(ReadRecord(input), expected);
  CheckResult(ReadRecord(input, &key), expected);
  RoundTrip(input, fingerprint);
  if (input.size() < 176) return;
  std::vector<std::byte> sealed(input.begin(), input.end());
  Reseal(sealed);
  CheckResult(ReadRecord(sealed), expected);
}

}  // namespace
}  // namespace kvern::kv

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvern::kv::TryAll(std::as_bytes(std::span(data, size)));
  return 0;
}
