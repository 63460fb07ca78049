// Records against goldens that another writer made, and against everything that can be wrong.
#include "kv/record.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "base/check.h"
#include "base/hash.h"

namespace kvern::kv {
namespace {

using Bytes = std::vector<std::byte>;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.is_open());
  return {std::istreambuf_iterator<char>(file), {}};
}

Bytes ToBytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<FingerprintField> GoldenFields() {
  const GroupSpec spec{.block_bytes = 64, .block_tokens = 4};
  return {{"weights", Blake2b256({ToBytes("weights")})},
          {"rope.base", 10000.0},
          {"layers", uint64_t{2}},
          {"adapter", "none"},
          GroupField(GroupId{0}, spec)};
}

Fingerprint MakeFingerprint(uint32_t numerics_version, std::vector<FingerprintField> fields) {
  auto made = Fingerprint::Make(numerics_version, std::move(fields));
  CHECK(made.ok());
  return *std::move(made);
}

// What tests/data/kv/make_record_goldens.py writes.
struct Golden {
  Fingerprint fingerprint = MakeFingerprint(3, GoldenFields());
  std::vector<TokenId> tokens = {TokenId{1}, TokenId{300}, TokenId{70000}};
  Bytes payload = Bytes(64);
  MacKey key;
  RecordKey parent;

  Golden() {
    for (size_t i = 0; i < 64; ++i) payload[i] = std::byte(i * 7);
    for (size_t i = 0; i < 32; ++i) key.bytes[i] = std::byte(128 + i);
    for (size_t i = 0; i < 32; ++i) parent.digest[i] = std::byte(i);
  }

  RecordIdentity Identity() const {
    return {.fingerprint = fingerprint,
            .name_space = NamespaceHashOf(ToBytes("tenant")),
            .layout = {.group = GroupId{0},
                       .kind = GroupKind::kFull,
                       .window = 0,
                       .block_tokens = 4,
                       .block_bytes = 64},
            .parent = parent,
            .first_position = 8,
            .tokens = tokens};
  }
};

// The refusal's name, or "ok". `message` must be one line.
std::string Outcome(const std::variant<RecordView, RecordError>& result) {
  const auto* refused = std::get_if<RecordError>(&result);
  if (refused == nullptr) return "ok";
  EXPECT_FALSE(refused->message.empty());
  EXPECT_EQ(refused->message.find('\n'), std::string::npos);
  return std::string(ToString(refused->refusal));
}

// A copy whose end is the heap's, so that sanitizers see a read outside.
std::string OutcomeOfCopy(std::span<const std::byte> record, const Golden& golden,
                          const MacKey* key = nullptr) {
  const Bytes copy(record.begin(), record.end());
  return Outcome(DecodeRecord(copy, golden.Identity(), key));
}

// Makes the checksum good again, as a broken writer would.
void Reseal(Bytes& record) {
  Hasher128 hasher;
  hasher.Add(std::span(record).first(32));
  hasher.Add(std::span(record).subspan(48));
  const Hash128 hash = hasher.Digest();
  std::memcpy(&record[32], &hash.low, 8);
  std::memcpy(&record[40], &hash.high, 8);
}

TEST(Record, EqualsTheGoldensOfAnotherWriter) {
  const Golden golden;
  const Bytes plain = ToBytes(ReadFile("tests/data/kv/record.bin"));
  const Bytes with_mac = ToBytes(ReadFile("tests/data/kv/record_mac.bin"));
  EXPECT_EQ(ToHex(EncodeRecord(golden.Identity(), golden.payload)), ToHex(plain));
  EXPECT_EQ(ToHex(EncodeRecord(golden.Identity(), golden.payload, &golden.key)), ToHex(with_mac));
  EXPECT_EQ(OutcomeOfCopy(plain, golden), "ok");
  EXPECT_EQ(OutcomeOfCopy(with_mac, golden, &golden.key), "ok");
  EXPECT_EQ(OutcomeOfCopy(with_mac, golden), "ok") << "without a key, a MAC is not looked at";
}

TEST(Record, TheDocumentShowsTheGoldenAndItsKeyAndEveryRefusal) {
  const std::string document = ReadFile("docs/record-format.md");
  const Golden golden;
  std::string shown;
  std::istringstream lines(document.substr(document.find("```hex\n") + 7));
  for (std::string line; std::getline(lines, line) && line != "```";) {
    for (const char c : line.substr(6)) {
      if (c != ' ') shown += c;
    }
  }
  EXPECT_EQ(shown, ToHex(ToBytes(ReadFile("tests/data/kv/record.bin"))));
  EXPECT_NE(document.find(ToHex(golden.fingerprint.digest())), std::string::npos);
  EXPECT_NE(document.find(ToHex(golden.Identity().Key().digest)), std::string::npos);
  EXPECT_NE(document.find(ToHex(RecordAddressOf(golden.Identity().Key(), GroupId{0}))),
            std::string::npos);
  for (size_t i = 0; i < kNumRecordRefusals; ++i) {
    const std::string name(ToString(RecordRefusal(i)));
    EXPECT_FALSE(name.empty());
    EXPECT_NE(document.find("| `" + name + "` |"), std::string::npos) << name;
  }
}

TEST(Record, ComesBackAsItWent) {
  const Golden golden;
  const RecordIdentity identity = golden.Identity();
  const Bytes record = EncodeRecord(identity, golden.payload);
  EXPECT_EQ(RecordHeaderBytes(identity) + golden.payload.size(), record.size());
  EXPECT_EQ(RecordHeaderBytes(identity) % kBlockAlignment, 0u);
  EXPECT_EQ(PeekRecordBytes(record), record.size());
  const auto decoded = DecodeRecord(record, identity);
  ASSERT_EQ(Outcome(decoded), "ok");
  const auto& view = *std::get_if<RecordView>(&decoded);
  EXPECT_EQ(view.Tokens(), golden.tokens);
  EXPECT_EQ(view.layout, identity.layout);
  EXPECT_EQ(view.name_space, identity.name_space);
  EXPECT_EQ(view.parent, identity.parent);
  EXPECT_EQ(view.first_position, 8u);
  EXPECT_EQ(ToHex(view.fingerprint), ToHex(golden.fingerprint.bytes()));
  EXPECT_EQ(ToHex(view.payload), ToHex(golden.payload));
  EXPECT_EQ(view.payload.data(), record.data() + RecordHeaderBytes(identity)) << "copied";
}

TEST(Record, EveryBlockOfEveryKindAndFillComesBack) {
  const Golden golden;
  for (const GroupKind kind : {GroupKind::kFull, GroupKind::kWindow, GroupKind::kState}) {
    for (size_t num_tokens = 1; num_tokens <= 16; ++num_tokens) {
      const std::vector<TokenId> tokens(num_tokens, TokenId{~0u});
      RecordIdentity identity = golden.Identity();
      identity.layout = RecordLayout::Of(
          GroupId{7}, {.kind = kind, .window = 512, .block_bytes = 64 * num_tokens});
      identity.tokens = tokens;
      const Bytes payload(identity.layout.block_bytes, std::byte(num_tokens));
      const Bytes record = EncodeRecord(identity, payload);
      EXPECT_EQ(Outcome(DecodeRecord(record, identity)), "ok");
    }
  }
}

// At every offset, every other value of the byte: no reader gets anything.
TEST(Record, EveryDamagedByteIsRefused) {
  const Golden golden;
  for (const MacKey* key : {static_cast<const MacKey*>(nullptr), &golden.key}) {
    Bytes record = EncodeRecord(golden.Identity(), golden.payload, key);
    std::map<std::string, std::set<size_t>> offsets;
    for (size_t i = 0; i < record.size(); ++i) {
      for (int change = 1; change < 256; ++change) {
        record[i] ^= std::byte(change);
        offsets[Outcome(DecodeRecord(record, golden.Identity(), key))].insert(i);
        record[i] ^= std::byte(change);
      }
    }
    EXPECT_FALSE(offsets.contains("ok"));
    EXPECT_EQ(offsets["bad_magic"], (std::set<size_t>{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(offsets["other_version"], (std::set<size_t>{8, 9, 10, 11}));
    EXPECT_EQ(offsets["truncated"], (std::set<size_t>{16, 17, 18, 19, 20, 21, 22, 23}));
    EXPECT_EQ(offsets["damaged"].size(), record.size() - 20);
  }
}

TEST(Record, EveryTruncationAndAnyTrailingByteIsRefused) {
  const Golden golden;
  Bytes record = EncodeRecord(golden.Identity(), golden.payload);
  for (size_t size = 0; size < record.size(); ++size) {
    EXPECT_EQ(OutcomeOfCopy(std::span(record).first(size), golden), "truncated") << size;
  }
  record.push_back(std::byte{0});
  EXPECT_EQ(OutcomeOfCopy(record, golden), "trailing_bytes");
  EXPECT_EQ(OutcomeOfCopy(ToBytes("no record"), golden), "bad_magic");
  EXPECT_EQ(OutcomeOfCopy(ToBytes("no"), golden), "bad_magic");
}

// One wrong thing in a record that is otherwise right.
TEST(Record, AnotherIdentityIsRefusedWithItsOwnReason) {
  const Golden golden;
  const std::vector<TokenId> other_token = {TokenId{1}, TokenId{301}, TokenId{70000}};
  const std::vector<TokenId> fewer_tokens = {TokenId{1}, TokenId{300}};
  const std::vector<std::pair<std::string, std::function<void(RecordIdentity&)>>> changes = {
      {"other_namespace", [](auto& id) { id.name_space = NamespaceHashOf(ToBytes("other")); }},
      {"other_namespace", [](auto& id) { id.name_space.digest[31] ^= std::byte{1}; }},
      {"other_layout", [](auto& id) { id.layout.group = GroupId{1}; }},
      {"other_layout", [](auto& id) { id.layout.kind = GroupKind::kWindow; }},
      {"other_layout", [](auto& id) { id.layout.window = 1; }},
      {"other_layout", [](auto& id) { id.layout.block_tokens = 16; }},
      {"other_position", [](auto& id) { id.first_position = 12; }},
      {"other_parent", [](auto& id) { id.parent = RecordKey{}; }},
      {"other_tokens", [&](auto& id) { id.tokens = other_token; }},
      {"other_tokens", [&](auto& id) { id.tokens = fewer_tokens; }},
  };
  for (const auto& [reason, change] : changes) {
    RecordIdentity identity = golden.Identity();
    change(identity);
    for (const MacKey* key : {static_cast<const MacKey*>(nullptr), &golden.key}) {
      EXPECT_EQ(OutcomeOfCopy(EncodeRecord(identity, golden.payload, key), golden, key), reason);
    }
  }
  RecordIdentity larger = golden.Identity();
  larger.layout.block_bytes = 128;
  EXPECT_EQ(OutcomeOfCopy(EncodeRecord(larger, Bytes(128)), golden), "other_layout");
}

RecordError RefusalOf(const Fingerprint& written, const Golden& golden) {
  RecordIdentity identity{.fingerprint = written,
                          .name_space = golden.Identity().name_space,
                          .layout = golden.Identity().layout,
                          .parent = golden.parent,
                          .first_position = 8,
                          .tokens = golden.tokens};
  const Bytes record = EncodeRecord(identity, golden.payload);
  const auto result = DecodeRecord(record, golden.Identity());
  CHECK(std::holds_alternative<RecordError>(result));
  return *std::get_if<RecordError>(&result);
}

TEST(Record, AnotherFingerprintIsRefusedByTheNameOfItsField) {
  const Golden golden;
  for (size_t i = 0; i < GoldenFields().size(); ++i) {
    std::vector<FingerprintField> changed = GoldenFields(), fewer = GoldenFields();
    const std::string name = changed[i].name;
    changed[i].value = "another";
    fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
    for (const auto& fields : {changed, fewer}) {
      const RecordError error = RefusalOf(MakeFingerprint(3, fields), golden);
      EXPECT_EQ(error.refusal, RecordRefusal::kOtherFingerprint);
      EXPECT_EQ(error.field, name);
    }
  }
  for (const std::string name : {"aaa", "mmm", "zzz"}) {
    std::vector<FingerprintField> more = GoldenFields();
    more.push_back({name, uint64_t{1}});
    const RecordError error = RefusalOf(MakeFingerprint(3, more), golden);
    EXPECT_EQ(error.field, name);
    EXPECT_EQ(error.message, "record: field " + name + " = 1 is unknown here");
  }
}

TEST(Record, AnotherValueOfAFieldIsToldWithBothValues) {
  const Golden golden;
  std::vector<FingerprintField> fields = GoldenFields();
  fields[1].value = 500000.0;
  EXPECT_EQ(RefusalOf(MakeFingerprint(3, fields), golden).message,
            "record: field rope.base = 500000, expected 10000");
  fields = GoldenFields();
  fields[3].value = "\x1b[2J" + std::string(100, 'x');
  EXPECT_EQ(RefusalOf(MakeFingerprint(3, fields), golden).message,
            "record: field adapter = \"?[2J" + std::string(60, 'x') + "...\", expected \"none\"");
}

TEST(Record, AnotherNumericsVersionIsRefusedAsThat) {
  const Golden golden;
  const RecordError error = RefusalOf(MakeFingerprint(4, GoldenFields()), golden);
  EXPECT_EQ(error.refusal, RecordRefusal::kOtherNumerics);
  EXPECT_EQ(error.field, "numerics_version");
  EXPECT_EQ(error.message, "record: field numerics_version = 4, expected 3");
}

TEST(Record, WithAKeyOnlyItsMacIsAccepted) {
  const Golden golden;
  MacKey other_key = golden.key;
  other_key.bytes[0] ^= std::byte{1};
  const auto outcome = [&](const Bytes& record) {
    return OutcomeOfCopy(record, golden, &golden.key);
  };
  EXPECT_EQ(outcome(EncodeRecord(golden.Identity(), golden.payload)), "not_authentic");
  EXPECT_EQ(outcome(EncodeRecord(golden.Identity(), golden.payload, &other_key)), "not_authentic");

  // A forger changes a byte and makes the checksum good.
  const Bytes good = EncodeRecord(golden.Identity(), golden.payload, &golden.key);
  for (size_t i = 12; i < good.size(); ++i) {
    if (i >= 16 && i < 24) continue;  // the length, which is checked before
    if (i >= 32 && i < 48) continue;  // the checksum itself
    Bytes forged = good;
    forged[i] ^= std::byte{1};
    Reseal(forged);
    EXPECT_EQ(outcome(forged), "not_authentic") << i;
  }
}

// Records with a good checksum that no right writer makes.
TEST(Record, BrokenFormatIsRefused) {
  const Golden golden;
  const Bytes good = EncodeRecord(golden.Identity(), golden.payload);
  const auto outcome_with = [&](size_t offset, uint32_t value) {
    Bytes record = good;
    std::memcpy(&record[offset], &value, sizeof(value));
    Reseal(record);
    return OutcomeOfCopy(record, golden);
  };
  const std::vector<std::pair<size_t, uint32_t>> changes = {
      {12, 2},
      {12, 1u << 31},  // flags
      {24, 63},
      {24, 65},
      {24, 128},
      {24, ~0u},
      {28, 1},  // block_bytes
      {48, 1},  // a MAC without its flag
      {156, 3},
      {156, ~0u},  // kind
      {164, 2},
      {164, 0},  // block_tokens
      {168, 0},
      {168, 4},
      {168, 5},
      {168, ~0u},  // num_tokens
      {172, 0},
      {172, 3},
      {172, 1u << 16},
      {172, ~0u},  // fingerprint_bytes
      {188, 0},
      {188, 7},
      {188, ~0u},                 // number of fields
      {good.size() - 64 - 4, 1},  // padding
  };
  for (const auto& [offset, value] : changes) {
    EXPECT_EQ(outcome_with(offset, value), "malformed") << offset << " " << value;
  }
  EXPECT_EQ(outcome_with(12, 1), "ok") << "a MAC that nobody checks";
}

// A broken writer may write anything in the fingerprint: either it still is canonical, and then
// another one, or the record is malformed.
TEST(Record, AnyChangeOfTheFingerprintIsRefused) {
  const Golden golden;
  const Bytes good = EncodeRecord(golden.Identity(), golden.payload);
  const size_t begin = 176 + 3 * sizeof(TokenId);
  std::set<std::string> outcomes;
  for (size_t i = begin; i < begin + golden.fingerprint.bytes().size(); ++i) {
    for (const int change : {0x01, 0x02, 0x04, 0x20, 0x80, 0xFF}) {
      Bytes record = good;
      record[i] ^= std::byte(change);
      Reseal(record);
      outcomes.insert(OutcomeOfCopy(record, golden));
    }
  }
  EXPECT_EQ(outcomes, (std::set<std::string>{"malformed", "other_fingerprint", "other_numerics"}));
}

TEST(Record, AnImportReadsTokensFromTheRecord) {
  const Golden golden;
  Bytes stream = EncodeRecord(golden.Identity(), golden.payload);
  const Bytes second = EncodeRecord(golden.Identity(), golden.payload, &golden.key);
  stream.insert(stream.end(), second.begin(), second.end());
  size_t num_records = 0;
  for (std::span<const std::byte> rest = stream; !rest.empty(); ++num_records) {
    const auto bytes = PeekRecordBytes(rest);
    ASSERT_TRUE(bytes.has_value() && *bytes <= rest.size());
    const auto read = ReadRecord(rest.first(*bytes));
    ASSERT_EQ(Outcome(read), "ok");
    const auto& view = *std::get_if<RecordView>(&read);
    const std::vector<TokenId> tokens = view.Tokens();
    RecordIdentity identity = golden.Identity();
    identity.tokens = tokens;
    EXPECT_FALSE(CheckIdentity(view, identity).has_value());
    rest = rest.subspan(*bytes);
  }
  EXPECT_EQ(num_records, 2u);
  EXPECT_FALSE(PeekRecordBytes(std::span(stream).first(23)).has_value());
  stream[8] = std::byte{2};
  EXPECT_FALSE(PeekRecordBytes(stream).has_value());
}

TEST(RecordKey, DependsOnEveryPart) {
  const Golden golden;
  const std::vector<TokenId> fewer = {TokenId{1}, TokenId{300}};
  std::set<std::string> keys;
  const auto add = [&](const RecordIdentity& id) { keys.insert(ToHex(id.Key().digest)); };
  RecordIdentity identity = golden.Identity();
  add(identity);
  identity.parent = RecordKey{};
  add(identity);
  identity.name_space = NamespaceHashOf(ToBytes("other"));
  add(identity);
  identity.tokens = fewer;
  add(identity);
  const Fingerprint other = MakeFingerprint(4, GoldenFields());
  keys.insert(ToHex(RecordKeyOf({}, other.digest(), identity.name_space, fewer).digest));
  EXPECT_EQ(keys.size(), 5u);
  identity.layout.group = GroupId{1};
  add(identity);
  EXPECT_EQ(keys.size(), 5u) << "groups share keys";
  EXPECT_NE(RecordAddressOf(identity.Key(), GroupId{0}),
            RecordAddressOf(identity.Key(), GroupId{1}));
}

TEST(Fingerprint, IsTheSameInAnyOrderOfFields) {
  std::vector<FingerprintField> fields = GoldenFields();
  const Fingerprint first = MakeFingerprint(3, fields);
  std::ranges::reverse(fields);
  const Fingerprint second = MakeFingerprint(3, fields);
  EXPECT_EQ(first.digest(), second.digest());
  EXPECT_TRUE(IsCanonicalFingerprint(first.bytes()));
  EXPECT_FALSE(FindDifference(first.bytes(), second).has_value());
}

TEST(Fingerprint, BadFieldsAreErrorsThatNameThem) {
  const auto message = [](std::vector<FingerprintField> fields) {
    const auto made = Fingerprint::Make(3, std::move(fields));
    return made.ok() ? "ok" : made.error().message;
  };
  EXPECT_EQ(message({}), "ok");
  EXPECT_EQ(message({{"a", "x"}, {"a", "y"}}), "fingerprint: field a occurs twice");
  EXPECT_EQ(message({{"numerics_version", "x"}}),
            "fingerprint: field numerics_version occurs twice");
  for (const std::string name : {"", "A", "a b", "\n"}) {
    EXPECT_NE(message({{name, "x"}}).find("a field's name has 1 to 64"), std::string::npos);
  }
  EXPECT_NE(message({{std::string(65, 'a'), "x"}}).find("1 to 64"), std::string::npos);
  EXPECT_EQ(message({{std::string(64, 'a'), std::string(4096, 'x')}}), "ok");
  EXPECT_NE(message({{"a", std::string(4097, 'x')}}).find("field a is longer"), std::string::npos);
  std::vector<FingerprintField> many;
  for (int i = 0; i < 20; ++i) many.push_back({fmt::format("f{}", i), std::string(4096, 'x')});
  EXPECT_NE(message(many).find("over 65536"), std::string::npos);
}

TEST(Digest, IsBlake2bAsOthersComputeIt) {
  const MacKey key = Golden().key;
  // hashlib.blake2b(b"abc", digest_size=32), and with key=bytes(range(128, 160))
  EXPECT_EQ(ToHex(Blake2b256({ToBytes("a"), ToBytes("bc")})),
            "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
  EXPECT_EQ(ToHex(Blake2b256({ToBytes("abc")}, &key)),
            "8abfd10fed4a3af54cd4fd43bb8615673e0963603ea59db7ac315c42b382ca98");
  EXPECT_FALSE(EqualInConstantTime(Blake2b256({}), Blake2b256({ToBytes("abc")})));
  EXPECT_TRUE(EqualInConstantTime(Blake2b256({}), Blake2b256({{}})));
}

}  // namespace
}  // namespace kvern::kv
