#include "cli/default_model.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace kvern::cli {

Result<std::string> FindModel(const std::string& flag) {
  if (!flag.empty()) return flag;
  const char* const variable = std::getenv("KVERN_MODEL");
  if (variable != nullptr && *variable != '\0') return std::string(variable);

  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto path =
      program.parent_path().parent_path() / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!error && std::filesystem::exists(path, error)) return path.string();
  return Errorf(ErrorCode::kNotFound,
                "no model: name one with -m FILE.gguf, or run scripts/setup to fetch the default");
}

}  // namespace kvern::cli
