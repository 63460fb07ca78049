#include "server/auth/key_ring.h"

#include <sodium.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/check.h"
#include "base/mapped_file.h"
#include "server/http/ascii.h"

namespace kvern::server {
namespace {

constexpr std::string_view kDigestPrefix = "blake2b:";
constexpr size_t kKeyBytes = 32;
constexpr size_t kTenantDigits = 12;
constexpr double kMaxRate = 1e9;

std::string ToHex(const unsigned char* bytes, size_t count) {
  std::string hex(2 * count + 1, '\0');
  sodium_bin2hex(hex.data(), hex.size(), bytes, count);
  hex.pop_back();
  return hex;
}

std::optional<KeyDigest> ParseDigest(std::string_view hex) {
  KeyDigest digest;
  size_t num_bytes = 0;
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  const int failed = sodium_hex2bin(digest.data(), digest.size(), hex.data(), hex.size(), nullptr,
                                    &num_bytes, nullptr);
  return failed == 0 && num_bytes == digest.size() ? std::optional(digest) : std::nullopt;
}

std::string NameOf(const KeyDigest& digest) {
  return "key-" + ToHex(digest.data(), digest.size()).substr(0, kTenantDigits);
}

// "a b c" to "a", and leaves "b c".
std::string_view TakeWord(std::string_view& text, std::string_view separators) {
  const size_t begin = text.find_first_not_of(separators);
  text.remove_prefix(std::min(begin, text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(separators));
  text.remove_prefix(word.size());
  return word;
}

// What is wrong with it, or none.
std::optional<std::string> SetRights(std::string_view value, Caller& caller) {
  caller.can_infer = caller.can_inspect = caller.can_administer = false;
  for (std::string_view name = TakeWord(value, ","); !name.empty(); name = TakeWord(value, ",")) {
    if (name == "infer") {
      caller.can_infer = true;
    } else if (name == "inspect") {
      caller.can_inspect = true;
    } else if (name == "admin") {
      caller.can_administer = true;
    } else {
      return fmt::format("the right '{}' is none of infer, inspect, admin", name);
    }
  }
  return std::nullopt;
}

std::optional<std::string> SetAmount(std::string_view name, std::string_view value,
                                     std::optional<KvAmount>& amount) {
  amount = ParseKvAmount(value);
  if (amount) return std::nullopt;
  return fmt::format("{}: '{}' is neither tokens, as 4096, nor a percentage, as 25%", name, value);
}

std::optional<std::string> SetField(std::string_view word, Caller& caller, TenantQuota& quota) {
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = equals == word.npos ? "" : word.substr(equals + 1);
  if (value.empty()) return fmt::format("'{}' is not of the form name=value", word);
  if (name == "tenant") {
    caller.tenant = value;
    return std::nullopt;
  }
  if (name == "priority") {
    const auto [end, error] = std::from_chars(value.begin(), value.end(), caller.priority);
    if (error == std::errc() && end == value.end()) return std::nullopt;
    return fmt::format("the priority '{}' is no integer", value);
  }
  if (name == "rate") {
    const auto [end, error] = std::from_chars(value.begin(), value.end(), caller.rate);
    if (error == std::errc() && end == value.end() && caller.rate > 0 && caller.rate <= kMaxRate) {
      return std::nullopt;
    }
    return fmt::format("the rate '{}' is no number above 0: requests a minute", value);
  }
  if (name == "rights") return SetRights(value, caller);
  if (name == "kv_share") return SetAmount(name, value, quota.share);
  if (name == "kv_floor") return SetAmount(name, value, quota.floor);
  return fmt::format("'{}' is none of tenant, priority, rate, rights, kv_share, kv_floor", name);
}

// A tenant's quota is on one line.
std::optional<std::string> AddQuota(TenantQuota quota, std::vector<TenantQuota>& quotas) {
  if (!quota.share && !quota.floor) return std::nullopt;
  const auto known = std::ranges::find(quotas, quota.tenant, &TenantQuota::tenant);
  if (known != quotas.end()) {
    return fmt::format("kv_share and kv_floor of the tenant {} are on line {} already",
                       quota.tenant, known->line);
  }
  quotas.push_back(std::move(quota));
  return std::nullopt;
}

void InitSodium() { CHECK(sodium_init() >= 0); }

}  // namespace

bool Caller::Has(Right right) const {
  switch (right) {
    case Right::kNone:
      return true;
    case Right::kInfer:
      return can_infer;
    case Right::kInspect:
      return can_inspect;
    case Right::kAdmin:
      return can_administer;
  }
  return false;
}

KeyDigest DigestOfKey(std::string_view key) {
  InitSodium();
  KeyDigest digest;
  crypto_generichash(digest.data(), digest.size(),
                     reinterpret_cast<const unsigned char*>(key.data()), key.size(), nullptr, 0);
  return digest;
}

Result<KeyFile> ParseKeyFile(std::string_view text) {
  InitSodium();
  KeyFile file;
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = TrimAscii(line.substr(0, line.find_first_of("#\r")));
    if (line.empty()) continue;
    const std::string_view key = TakeWord(line, " \t");
    KeyRing::Entry entry{.digest = DigestOfKey(key), .caller = {.can_administer = false}};
    if (key.starts_with(kDigestPrefix)) {
      const auto digest = ParseDigest(key.substr(kDigestPrefix.size()));
      if (!digest) {
        return Errorf(ErrorCode::kInvalidArgument, "line {}: {} must be followed by 64 hex digits",
                      number, kDigestPrefix);
      }
      entry.digest = *digest;
    }
    entry.caller.key = entry.caller.tenant = NameOf(entry.digest);
    TenantQuota quota{.tenant = {}, .line = number};
    std::optional<std::string> problem;
    for (auto word = TakeWord(line, " \t"); !word.empty() && !problem;
         word = TakeWord(line, " \t")) {
      problem = SetField(word, entry.caller, quota);
    }
    quota.tenant = entry.caller.tenant;
    if (!problem) problem = AddQuota(std::move(quota), file.quotas);
    if (problem) return Errorf(ErrorCode::kInvalidArgument, "line {}: {}", number, *problem);
    file.entries.push_back(std::move(entry));
  }
  return file;
}

Result<std::unique_ptr<KeyRing>> KeyRing::Make(const std::vector<std::string>& keys,
                                               const std::string& file) {
  std::vector<Entry> fixed;
  for (const std::string& key : keys) {
    if (key.empty()) return Errorf(ErrorCode::kInvalidArgument, "--api-key: a key is empty");
    const KeyDigest digest = DigestOfKey(key);
    fixed.push_back({digest, {.tenant = NameOf(digest), .key = NameOf(digest)}});
  }
  std::unique_ptr<KeyRing> ring(new KeyRing(std::move(fixed), file));
  KVERN_RETURN_IF_ERROR(ring->Reload());
  return ring;
}

Status KeyRing::Reload(const Accept& accept) {
  std::vector<Entry> entries = fixed_;
  std::vector<TenantQuota> quotas;
  if (!file_.empty()) {
    KVERN_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(file_));
    auto parsed = ParseKeyFile(text);
    if (!parsed.ok()) {
      return Errorf(ErrorCode::kInvalidArgument, "{}: {}", file_, parsed.error().message);
    }
    if (parsed->entries.empty())
      return Errorf(ErrorCode::kInvalidArgument, "{}: has no keys", file_);
    std::ranges::move(parsed->entries, std::back_inserter(entries));
    quotas = std::move(parsed->quotas);
  }
  if (accept) KVERN_RETURN_IF_ERROR(Ask(accept, quotas));
  const std::lock_guard lock(mutex_);
  entries_ = std::move(entries);
  quotas_ = std::move(quotas);
  return {};
}

Status KeyRing::Ask(const Accept& accept, std::span<const TenantQuota> quotas) const {
  const Status status = accept(quotas);
  if (status.ok()) return {};
  return Errorf(status.error().code, "{}: {}", file_, status.error().message);
}

std::vector<TenantQuota> KeyRing::quotas() const {
  const std::lock_guard lock(mutex_);
  return quotas_;
}

Status KeyRing::Check(const Accept& accept) const { return Ask(accept, quotas()); }

bool KeyRing::is_open() const { return fixed_.empty() && file_.empty(); }

std::optional<Caller> KeyRing::Find(std::optional<std::string_view> key) const {
  if (is_open()) return Caller{};
  if (!key) return std::nullopt;
  const KeyDigest digest = DigestOfKey(*key);
  const std::lock_guard lock(mutex_);
  std::optional<Caller> found;
  for (const Entry& entry : entries_) {
    const bool is_same = sodium_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0;
    if (is_same && !found) found = entry.caller;
  }
  return found;
}

NewKey MakeKey() {
  InitSodium();
  unsigned char bytes[kKeyBytes];
  randombytes_buf(bytes, sizeof(bytes));
  std::string key = "kv-" + ToHex(bytes, sizeof(bytes));
  const KeyDigest digest = DigestOfKey(key);
  std::string line = fmt::format("{}{} tenant=NAME rights=infer,inspect", kDigestPrefix,
                                 ToHex(digest.data(), digest.size()));
  return {std::move(key), std::move(line)};
}

}  // namespace kvern::server
