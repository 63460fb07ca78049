// kv_model_check: random operations on the KV cache beside a naive model of it. Usage: program.h.
#include "kv/model_check/program.h"

#include "kv/model_check/runner.h"

namespace kvern::kv::model_check {
namespace {

struct CacheChecker {
  static constexpr std::string_view kName = "kv_model_check";
  static constexpr uint64_t kCheckEvery = 1;
  using Setup = CacheSetup;
  using Options = CheckerOptions;
  using Operation = model_check::Operation;

  static std::span<const CacheSetup> Setups() { return model_check::Setups(); }
  static const CacheSetup* FindSetup(std::string_view name) { return model_check::FindSetup(name); }
  static std::optional<Operation> ParseOperation(std::string_view line) {
    return model_check::ParseOperation(line);
  }
  static uint64_t NumSteps(const HuntResult& result) { return result.num_steps; }
  static std::string Details(const HuntResult&) { return ""; }
};

}  // namespace
}  // namespace kvern::kv::model_check

int main(int argc, char** argv) {
  return kvern::kv::model_check::Program<kvern::kv::model_check::CacheChecker>::Main(argc, argv);
}
