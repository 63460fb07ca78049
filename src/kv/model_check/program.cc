#include "kv/model_check/program.h"

#include <charconv>

namespace kvern::kv::model_check {
namespace {

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

int Usage(std::string_view program, const std::string& what) {
  fmt::print(stderr,
             "{}: {}: use --seconds N, --steps N, --seed N, --config NAME, --check-every N, "
             "--replay FILE or --list\n",
             program, what);
  return 2;
}

std::optional<std::string> ParseFlags(std::span<char* const> arguments, ProgramFlags& flags) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    if (name == "--list") {
      flags.is_list = true;
      continue;
    }
    if (i + 1 == arguments.size()) return fmt::format("{} is unknown or lacks its value", name);
    const std::string_view value = arguments[++i];
    if (name == "--config") {
      flags.setup = value;
    } else if (name == "--replay") {
      flags.replay = value;
    } else {
      const auto number = ParseNumber(value);
      if (!number) return fmt::format("{} {} is not a number", name, value);
      if (name == "--seconds") {
        flags.seconds = static_cast<double>(*number);
      } else if (name == "--steps") {
        flags.num_steps = *number;
        flags.seconds = 1e9;
      } else if (name == "--seed") {
        flags.seed = *number;
      } else if (name == "--check-every" && *number > 0) {
        flags.check_every = *number;
      } else {
        return fmt::format("{} {} is unknown", name, value);
      }
    }
  }
  return std::nullopt;
}

}  // namespace kvern::kv::model_check
