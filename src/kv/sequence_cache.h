// SequenceCache: where one sequence keeps its K/V in one layer group, whatever the strategy.
//
// All strategies (kv/strategy.h) present the same PagedView, so the executor and its kernels cannot
// tell them apart and no result bit depends on the choice. They differ in memory, waste and copies,
// which usage() reports to the byte.
//
// A text goes through Begin, and then Extend and Commit for each step. Where tokens do not matter,
// as in a benchmark, it starts without Begin and grows by counts: nobody finds such a text again.
//
// One writer thread, shared by all caches of a KvCache. Destruction gives all memory back; what a
// strategy keeps of a text for later texts is then the KvCache's, as cached blocks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "base/result.h"
#include "kvern/ids.h"
#include "kvern/paged_view.h"

namespace kvern::kv {

struct CacheUsage {
  size_t bytes_allocated = 0;  // from the store, or as blocks of the cache (shared ones included)
  size_t bytes_used = 0;       // by the rows of [0, length); the rest is waste
  size_t bytes_copied = 0;     // ever: by growing, or because a block was not its own to write
  size_t peak_bytes = 0;       // most bytes allocated at once, ever
};

// One thing that happened to the memory of a cache, for those who trace it.
struct CacheEvent {
  enum class Kind {
    kAllocate,     // `tokens` is the room gained
    kGrowCopy,     // rows copied to another region, to grow or to fork; `tokens` is their number
    kCopyOnWrite,  // of a block that others can read, copied to be gone on from; `tokens` is rows
    kFree,         // `tokens` is the room given back
  };
  Kind kind;
  size_t bytes;
  size_t tokens;
};

// May be empty. Called on the writer thread, inside the operation.
using CacheEventHook = std::function<void(const CacheEvent& event)>;

class SequenceCache {
 public:
  virtual ~SequenceCache() = default;

  // Begins a text: keeps rows of the longest prefix of `tokens` (at least one) that it can find, at
  // most max_kept, and forgets the others. Returns length() as it is then. Errors: kOutOfMemory;
  // the cache is empty then.
  virtual Result<size_t> Begin(std::span<const TokenId> tokens, size_t max_kept) = 0;

  // Makes room for `tokens` at positions [length, length + tokens.size()); the rows before stay as
  // they are. REQUIRES: Begin(). Errors: kOutOfMemory, with length and contents unchanged.
  virtual Status Extend(std::span<const TokenId> tokens) = 0;

  // The same for a text without Begin().
  virtual Status Extend(size_t num_tokens) = 0;

  // Declares all rows final: only these can be kept by a Begin().
  virtual void Commit() = 0;

  // Forgets positions from `length` on. REQUIRES: length ≤ this->length().
  virtual void Truncate(size_t length) = 0;

  // Another sequence with the same history, from then on independent. It shares blocks where the
  // strategy can, and copies the rows where it cannot. Errors: kOutOfMemory; this one is unchanged.
  virtual Result<std::unique_ptr<SequenceCache>> Fork() = 0;

  // Pointers are valid until the cache changes. Blocks are zeroed before they first
  // appear.
  virtual PagedView View() const = 0;

  virtual size_t length() const = 0;
  virtual CacheUsage usage() const = 0;
};

}  // namespace kvern::kv
