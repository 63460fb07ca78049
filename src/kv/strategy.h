// The strategies of --kv: one row each in a visible table, one file each in kv/strategy/.
//
// A strategy decides how a sequence's blocks get memory; see docs/kv-strategies.md for when each is
// worth having. To add one, write its file, declare its factory here and add its row in
// strategy.cc: the conformance test runs over every row.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "kv/sequence_cache.h"
#include "kvern/kv.h"

namespace kvern::kv {

struct CacheOptions {
  // Both must outlive the sequence. `paged` takes blocks of `cache` and so keeps within its budget;
  // the others get regions of the store that `cache` was made with, beside that budget.
  KvCache* cache = nullptr;
  BlockStore* store = nullptr;
  NamespaceId ns = {};  // of the texts
  GroupId group = {};
  size_t max_tokens = 0;  // the context: longer sequences are refused
  CacheEventHook on_event;
};

struct Strategy {
  std::string_view name;  // as in --kv
  std::string_view help;  // one line
  // The cache keeps nothing that is worth reading in the next step: before each step the engine
  // must Truncate(0) and compute the whole history again.
  bool recomputes_history;
  std::unique_ptr<SequenceCache> (*make)(CacheOptions options);  // takes no memory yet
};

// The first row is the default.
std::span<const Strategy> Strategies();

// Errors: kInvalidArgument, naming the strategies that exist.
Result<const Strategy*> FindStrategy(std::string_view name);

// The factories, one a file.
std::unique_ptr<SequenceCache> MakePagedCache(CacheOptions options);
std::unique_ptr<SequenceCache> MakeDynamicCache(CacheOptions options);
std::unique_ptr<SequenceCache> MakeStaticCache(CacheOptions options);
std::unique_ptr<SequenceCache> MakeNoCache(CacheOptions options);

}  // namespace kvern::kv
