// CachedPrompts: the prompts that clients had computed ahead, to be found when they are asked.
// Any thread.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kvern/ids.h"

namespace kvern::server {

struct CachedPrompt {
  std::string id;
  std::string tenant;
  std::vector<TokenId> tokens;
  size_t kept_tokens = 0;  // of these, as far as the tenant's share of the memory went
  double created_unix_s = 0;
  double expires_unix_s = 0;
};

class CachedPrompts {
 public:
  static constexpr size_t kMaxPrompts = 1024;  // of a tenant

  bool HasRoom(const std::string& tenant, double now_unix_s);
  // In place of one with its id.
  void Put(CachedPrompt prompt);
  // Of that tenant, or any. None: there is none, or its time is over.
  std::optional<CachedPrompt> Find(const std::string& id, const std::optional<std::string>& tenant,
                                   double now_unix_s);
  void Remove(const std::string& id);
  std::vector<CachedPrompt> List(const std::optional<std::string>& tenant, double now_unix_s);

 private:
  void ForgetExpired(double now_unix_s);

  std::mutex mutex_;
  std::map<std::string, CachedPrompt> prompts_;  // by id
};

}  // namespace kvern::server
