#include "server/cached_prompts.h"

#include <algorithm>
#include <utility>

namespace kvern::server {

void CachedPrompts::ForgetExpired(double now_unix_s) {
  std::erase_if(prompts_,
                [&](const auto& entry) { return entry.second.expires_unix_s <= now_unix_s; });
}

bool CachedPrompts::HasRoom(const std::string& tenant, double now_unix_s) {
  const std::lock_guard lock(mutex_);
  ForgetExpired(now_unix_s);
  return std::ranges::count_if(prompts_, [&](const auto& entry) {
           return entry.second.tenant == tenant;
         }) < static_cast<ptrdiff_t>(kMaxPrompts);
}

void CachedPrompts::Put(CachedPrompt prompt) {
  const std::lock_guard lock(mutex_);
  std::string id = prompt.id;
  prompts_.insert_or_assign(std::move(id), std::move(prompt));
}

std::optional<CachedPrompt> CachedPrompts::Find(const std::string& id,
                                                const std::optional<std::string>& tenant,
                                                double now_unix_s) {
  const std::lock_guard lock(mutex_);
  ForgetExpired(now_unix_s);
  const auto found = prompts_.find(id);
  if (found == prompts_.end() || (tenant && found->second.tenant != *tenant)) return std::nullopt;
  return found->second;
}

void CachedPrompts::Remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  prompts_.erase(id);
}

std::vector<CachedPrompt> CachedPrompts::List(const std::optional<std::string>& tenant,
                                              double now_unix_s) {
  const std::lock_guard lock(mutex_);
  ForgetExpired(now_unix_s);
  std::vector<CachedPrompt> list;
  for (const auto& [id, prompt] : prompts_) {
    if (!tenant || prompt.tenant == *tenant) list.push_back(prompt);
  }
  std::ranges::sort(list, {}, &CachedPrompt::created_unix_s);
  return list;
}

}  // namespace kvern::server
