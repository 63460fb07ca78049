// What the endpoints that show the server's inside have in common: bodies of their parts.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "kvern/engine.h"
#include "server/api/call.h"

namespace kvern::server {

// A miss, as /kv/explain and /requests tell it: ToldReason(), and of a sharing group's texts the
// position alone.
nlohmann::ordered_json MissBody(const ModelText& text, const kv::Miss& miss, bool is_shared);

// Tokens found by place, and missed by reason.
nlohmann::ordered_json PromptsBody(const kv::PromptSplit& prompts);
nlohmann::ordered_json FoundBody(const kv::PromptSplit& prompts);  // by place alone

nlohmann::ordered_json StatesBody(const kv::StateCounts& bytes);

// /kv's reply: the caller's share of the memory, and all of it for who sees all.
nlohmann::ordered_json KvBody(const Call& call);

// A number of the query: `usual` where it has none, and none where the call has failed, as it is
// not from 1 to `most`.
std::optional<size_t> QueryCount(const Call& call, const char* name, size_t usual, size_t most);

// A request to the engine that finds what the caller's find.
Request OwnerOf(const Call& call);

// The text of tokens, at most `max_bytes` of it, in whole characters.
std::string ExcerptOf(const Serving& serving, std::span<const TokenId> tokens, size_t max_bytes);

}  // namespace kvern::server
