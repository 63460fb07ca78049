// What an engine tells the KV library: its layer groups, and the memory that blocks lie in.
//
// A group is the layers of a model whose K/V live and die by one rule. The library never learns
// what a layer is: to it a group is a block size and a lifetime rule. Plain data.
//
// A BlockStore is the only code that touches the bytes of blocks: the library decides which bytes
// live where; a store gets, clears and copies them. MakeHostStore() has host memory; an engine with
// device memory supplies its own (addresses are then the device's, and nobody but the store follows
// them).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>

#include "kvern/paged_view.h"
#include "kvern/result.h"

namespace kvern::kv {

// Index into the list of groups that a pool was made with.
enum class GroupId : uint32_t {};

enum class GroupKind {
  kFull,    // every position stays visible
  kWindow,  // only the last `window` positions are
  kState,   // a recurrent state: a block is valid at exactly one position
};

struct GroupSpec {
  GroupKind kind = GroupKind::kFull;
  uint32_t window = 0;     // tokens; kWindow only
  size_t block_bytes = 0;  // a positive multiple of kBlockAlignment
  uint32_t block_tokens = kBlockTokens;
  // Row t depends on tokens ≤ t alone (N5), so the first rows of a block can be kept or copied. If
  // not, blocks are reused whole only.
  bool row_independent = true;
  uint32_t max_rollback = 0;  // tokens that a Truncate() may take back from a window or state
};

inline constexpr size_t kBlockAlignment = 64;  // bytes: one cache line, one widest vector

using Digest = std::array<std::byte, 32>;

// A secret that writers and readers of a shared tier have in common.
struct MacKey {
  std::array<std::byte, 32> bytes{};
};

// Floats compare by their bits.
using FieldValue = std::variant<uint64_t, double, std::string, Digest>;

struct FingerprintField {
  std::string name;  // 1 to 64 of a-z 0-9 _ and .
  FieldValue value;  // a text: at most 4,096 bytes
};

// A run of memory of one store, at a fixed address until it is freed.
using Region = std::span<std::byte>;

// One writer thread calls everything; bytes_held() may be read from any thread.
class BlockStore {
 public:
  virtual ~BlockStore() = default;

  // A region of at least `bytes` (> 0), all zeros, aligned to kBlockAlignment. Its size is what the
  // store really took, rounding included. Errors: kOutOfMemory, and nothing has changed.
  virtual Result<Region> Allocate(size_t bytes) = 0;

  // Gives back a region that Allocate() returned, whole.
  virtual void Free(Region region) = 0;

  virtual void Zero(std::byte* to, size_t bytes) = 0;
  virtual void Copy(std::byte* to, const std::byte* from, size_t bytes) = 0;

  // Host bytes out of and into blocks, and whether two blocks are the same; the defaults are for
  // memory that the host can address.
  virtual void Read(std::span<std::byte> to, const std::byte* from) const;
  virtual void Write(std::byte* to, std::span<const std::byte> from);
  virtual bool Equal(const std::byte* a, const std::byte* b, size_t bytes) const;

  // Copies the rows of the first `num_tokens` of one block of `group` into another that is zeroed.
  virtual void CopyRows(GroupId group, std::byte* to, const std::byte* from,
                        uint32_t num_tokens) = 0;

  // The sum of the sizes of all regions not yet freed.
  virtual size_t bytes_held() const = 0;
};

// Copies the rows of the first `num_tokens` of a block: the engine's, because only the engine knows
// where in a block a row lies (K is stored transposed).
using CopyRowsFunction =
    std::function<void(GroupId group, std::byte* to, const std::byte* from, uint32_t num_tokens)>;

// Anonymous host memory from the operating system: whole pages, resident only once written, huge
// pages asked for from 2 MiB on.
std::unique_ptr<BlockStore> MakeHostStore(CopyRowsFunction copy_rows);

}  // namespace kvern::kv
