// Attention of the default model's shape, as a forward pass runs it: decode streams K/V from
// memory, prefill computes on K/V that are in cache.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench_attention.h"
#include "cli/bench_kernels.h"
#include "compute/kv_dtype.h"
#include "compute/kv_layout.h"

namespace kvern::cli {
namespace {

constexpr uint32_t kHeads = 9;
constexpr uint32_t kKvHeads = 3;
constexpr uint32_t kHeadDim = 64;
constexpr uint32_t kMaxContext = 8192;
constexpr uint32_t kDecodeContexts[] = {2048, 8192};
constexpr uint32_t kPrefillLengths[] = {512, 2048};
constexpr size_t kKvBytes = size_t{96} << 20;  // that a decode reads, at least

// As many layers as make kKvBytes.
compute::KvLayout MakeLayout(compute::KvDtype dtype) {
  compute::KvLayout layout = {.num_layers = 1,
                              .num_kv_heads = kKvHeads,
                              .head_dim = kHeadDim,
                              .k_dtype = dtype,
                              .v_dtype = dtype};
  layout.num_layers = static_cast<uint32_t>(kKvBytes / (layout.token_bytes() * kMaxContext) + 1);
  return layout;
}

KernelGroup MakeGroup(const compute::Isa& isa, const compute::KvDtypeTraits& dtype) {
  const compute::KvLayout layout = MakeLayout(dtype.dtype);
  const auto data = std::make_shared<std::unique_ptr<AttentionBench>>();
  KernelGroup group;
  group.load = [data, layout, &isa](ThreadTeam& team) -> Status {
    KVERN_ASSIGN_OR_RETURN(
        *data, AttentionBench::Create({.isa = &isa,
                                       .layout = layout,
                                       .num_heads = kHeads,
                                       .context = kMaxContext,
                                       .max_rows = *std::ranges::max_element(kPrefillLengths),
                                       .max_threads = team.size()}));
    return {};
  };
  const std::string type(dtype.name);
  for (const uint32_t context : kDecodeContexts) {
    group.cases.push_back(
        {.kernel = "attention decode",
         .type = type,
         .shape = fmt::format("{} tokens", context),
         .limit = Limit::kRead,
         .work = static_cast<double>(layout.token_bytes()) * kMaxContext,
         .run = [data, context](ThreadTeam& team) { (*data)->Decode(team, context); }});
  }
  for (const uint32_t length : kPrefillLengths) {
    const double pairs = 0.5 * length * (length + 1.0) * kHeads;
    group.cases.push_back({.kernel = "attention prefill",
                           .type = type,
                           .shape = fmt::format("{} tokens", length),
                           .limit = Limit::kFma,
                           .work = pairs * 2 * 2 * kHeadDim,  // scores and outputs
                           .run = [data, length](ThreadTeam& team) {
                             (*data)->Prefill(team, length, /*num_layers=*/1);
                           }});
  }
  return group;
}

}  // namespace

std::vector<KernelGroup> AttentionGroups(const compute::Isa& isa) {
  std::vector<KernelGroup> groups;
  for (const compute::KvDtypeTraits& dtype : compute::KvDtypes()) {
    groups.push_back(MakeGroup(isa, dtype));
  }
  return groups;
}

}  // namespace kvern::cli
