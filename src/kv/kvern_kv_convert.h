// Between kvern_kv.h and kv.h: structs that carry their size, tables of callbacks, options.
//
// Everything that comes in through the C API is checked here or in kvern_kv.cc, so that no CHECK of
// the library can be reached from outside. Stateless but for the adapters, which call the caller's
// callbacks on the writer's thread (CallbackTier::Contains on any).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kvern/kv.h"
#include "kvern/kvern_kv.h"

namespace kvern::kv {

// Tokens that no budget holds: beyond this, sums of lengths could wrap.
inline constexpr size_t kMaxTokens = size_t{1} << 40;

// Whether a struct of the caller's is there, with the fields of version 1.0 at least, and with
// nothing that this version does not know. `struct_size` is its first member.
template <typename T>
Status CheckStruct(const T* given, std::string_view name) {
  if (given == nullptr) return Errorf(ErrorCode::kInvalidArgument, "{} is null", name);
  constexpr size_t kMaxStructBytes = 1 << 16;
  const size_t size = given->struct_size;
  if (size < sizeof(T) || size > kMaxStructBytes) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "{}: struct_size is {}, expected {}: set it to the struct's sizeof", name, size,
                  sizeof(T));
  }
  return {};
}

template <typename T>
Result<T> ReadStruct(const T* given, std::string_view name) {
  KVERN_RETURN_IF_ERROR(CheckStruct(given, name));
  const std::span bytes(reinterpret_cast<const std::byte*>(given), given->struct_size);
  const auto unknown = bytes.subspan(sizeof(T));
  if (!std::ranges::all_of(unknown, [](std::byte byte) { return byte == std::byte{0}; })) {
    return Errorf(ErrorCode::kUnsupported,
                  "{}: sets fields that are newer than this library: use a newer one", name);
  }
  T value = {};
  std::memcpy(&value, given, sizeof(T));
  return value;
}

template <typename T>
Result<T> ReadElement(const T* array, size_t index, std::string_view name) {
  KVERN_RETURN_IF_ERROR(CheckStruct(array, name));
  const auto* const bytes = reinterpret_cast<const std::byte*>(array) + index * array->struct_size;
  const auto* const element = reinterpret_cast<const T*>(bytes);
  if (element->struct_size != array->struct_size) {
    return Errorf(ErrorCode::kInvalidArgument, "{}[{}]: struct_size differs from that of [0]", name,
                  index);
  }
  return ReadStruct(element, name);
}

// REQUIRES: CheckStruct() of `to`. Leaves its struct_size and what this version does not know.
template <typename T>
void WriteStruct(T value, T* to) {
  value.struct_size = to->struct_size;
  std::memcpy(to, &value, sizeof(T));
}

kvern_kv_status StatusOf(ErrorCode code);

Result<std::vector<TokenId>> ReadTokens(const uint32_t* tokens, size_t num_tokens);
Result<NamespaceSpec> ReadNamespaceSpec(const kvern_kv_namespace_spec* spec);
// Without the tokens.
Result<Prompt> ReadPrompt(const kvern_kv_prompt& prompt);

Status WriteMiss(const Miss& miss, kvern_kv_miss* to);
kvern_kv_split ConvertSplit(const PromptSplit& split);
kvern_kv_stats ConvertStats(const KvStats& stats);

Result<std::unique_ptr<BlockStore>> MakeStore(const kvern_kv_store* store);
// Null where none is asked for.
Result<std::unique_ptr<Tier>> MakeTier(const kvern_kv_options& options);
// Without the tier.
Result<KvCacheOptions> ReadOptions(const kvern_kv_options& options);

}  // namespace kvern::kv
