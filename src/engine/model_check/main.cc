// engine_model_check: random requests to an engine on a fake model, clock and executor. Usage:
// kv/model_check/program.h.
#include "engine/model_check/runner.h"
#include "kv/model_check/program.h"

namespace kvern::engine::model_check {
namespace {

struct EngineChecker {
  static constexpr std::string_view kName = "engine_model_check";
  static constexpr uint64_t kCheckEvery = 16;
  using Setup = EngineSetup;
  using Options = SimulationOptions;
  using Operation = model_check::Operation;

  static std::span<const EngineSetup> Setups() { return model_check::Setups(); }
  static const EngineSetup* FindSetup(std::string_view name) {
    return model_check::FindSetup(name);
  }
  static std::optional<Operation> ParseOperation(std::string_view line) {
    return model_check::ParseOperation(line);
  }
  static uint64_t NumSteps(const HuntResult& result) { return result.counts.steps; }
  static std::string Details(const HuntResult& result) {
    const SimulationCounts& counts = result.counts;
    return fmt::format(
        "  requests {} refused {} cancelled {} late {} failed {} tokens {} preempted {} waits {} "
        "forks {} loads {} pauses {} self-checks {} parts {} shared {} drafts {} accepted {}\n",
        counts.requests, counts.refused, counts.cancelled, counts.deadlines, counts.failed,
        counts.tokens, counts.preemptions, counts.waits, counts.forks, counts.loads, counts.pauses,
        counts.self_checks, counts.parts, counts.shared_groups, counts.drafts, counts.accepted);
  }
};

}  // namespace
}  // namespace kvern::engine::model_check

int main(int argc, char** argv) {
  using kvern::engine::model_check::EngineChecker;
  return kvern::kv::model_check::Program<EngineChecker>::Main(argc, argv);
}
