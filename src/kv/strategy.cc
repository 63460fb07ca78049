#include "kv/strategy.h"

#include <string>

namespace kvern::kv {
namespace {

constexpr Strategy kStrategies[] = {
    {.name = "paged",
     .help = "blocks of 16 tokens from a pool as they are needed (default)",
     .recomputes_history = false,
     .make = MakePagedCache},
    {.name = "dynamic",
     .help = "one region that grows by half and is copied when it must",
     .recomputes_history = false,
     .make = MakeDynamicCache},
    {.name = "static",
     .help = "one region for the whole context from the start",
     .recomputes_history = false,
     .make = MakeStaticCache},
    {.name = "none",
     .help = "no cache: every step computes the whole history again",
     .recomputes_history = true,
     .make = MakeNoCache},
};

}  // namespace

std::span<const Strategy> Strategies() { return kStrategies; }

Result<const Strategy*> FindStrategy(std::string_view name) {
  std::string names;
  for (const Strategy& strategy : kStrategies) {
    if (strategy.name == name) return &strategy;
    names += (names.empty() ? "" : ", ") + std::string(strategy.name);
  }
  return Errorf(ErrorCode::kInvalidArgument, "unknown KV strategy '{}': use one of {}", name,
                names);
}

}  // namespace kvern::kv
