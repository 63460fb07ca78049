// KeyRing: who may use the server, by API key.
//
// Keys are kept as BLAKE2b-256 of their text, and compared in the same time whether they fit or
// not. A key file has one a line, and '#' begins a comment:
//
//   blake2b:9f86…08 tenant=acme priority=1 rate=60 rights=infer,inspect kv_share=50% kv_floor=1024
//   sk-…                                            the key itself, as llama-server's files have it
//
// A key without `tenant` is a tenant of its own. kv_share and kv_floor are the tenant's: one line
// for each is enough. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "server/auth/tenant_quota.h"

namespace kvern::server {

enum class Right { kNone, kInfer, kInspect, kAdmin };

struct Caller {
  std::string tenant = {};
  int priority = 0;
  std::string key = {};  // begins like its digest; empty: nobody's
  double rate = 0;       // requests a minute; 0: any
  bool can_infer = true;
  bool can_inspect = true;
  bool can_administer = true;

  bool Has(Right right) const;
};

using KeyDigest = std::array<unsigned char, 32>;
KeyDigest DigestOfKey(std::string_view key);

class KeyRing {
 public:
  struct Entry {
    KeyDigest digest;
    Caller caller;
  };

  // Keys of command lines may do everything. Errors: kInvalidArgument with the line.
  static Result<std::unique_ptr<KeyRing>> Make(const std::vector<std::string>& keys,
                                               const std::string& file);

  // Without keys anybody is let in.
  bool is_open() const;
  // Whose key it is. None: nobody's.
  std::optional<Caller> Find(std::optional<std::string_view> key) const;

  // Reads the file again. After an error the old keys are in force, and also where `accept`, which
  // is told the tenants' quotas, has one: that names the line.
  using Accept = std::function<Status(std::span<const TenantQuota>)>;
  Status Reload(const Accept& accept = {});
  std::vector<TenantQuota> quotas() const;
  // Asks about those that are in force, as Reload() does.
  Status Check(const Accept& accept) const;

 private:
  KeyRing(std::vector<Entry> fixed, std::string file)
      : fixed_(std::move(fixed)), file_(std::move(file)) {}
  Status Ask(const Accept& accept, std::span<const TenantQuota> quotas) const;

  const std::vector<Entry> fixed_;
  const std::string file_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::vector<TenantQuota> quotas_;
};

struct KeyFile {
  std::vector<KeyRing::Entry> entries;
  std::vector<TenantQuota> quotas;  // by line
};
// Errors: kInvalidArgument with the line.
Result<KeyFile> ParseKeyFile(std::string_view text);

// A new key, 256 random bits, and the line that a key file needs for it.
struct NewKey {
  std::string key;
  std::string line;
};
NewKey MakeKey();

}  // namespace kvern::server
