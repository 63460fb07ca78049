#include "model/arch/architecture.h"

namespace kvern::model {

extern const Architecture kLlama;
extern const Architecture kQwen2;
extern const Architecture kQwen3;

namespace {

constexpr const Architecture* kArchitectures[] = {&kLlama, &kQwen2, &kQwen3};

std::string Names() {
  std::string names;
  for (const Architecture* architecture : kArchitectures) {
    if (!names.empty()) names += ", ";
    names += architecture->name;
  }
  return names;
}

}  // namespace

std::span<const Architecture* const> Architectures() { return kArchitectures; }

Result<ModelConfig> ReadConfig(const Gguf& gguf) {
  KVERN_ASSIGN_OR_RETURN(const std::string_view name, gguf.GetString("general.architecture"));
  for (const Architecture* architecture : kArchitectures) {
    if (architecture->name == name) return architecture->read_config(gguf);
  }
  return Errorf(ErrorCode::kUnsupported, "{}: general.architecture: '{}' is not supported, only {}",
                gguf.path(), Printable(name), Names());
}

}  // namespace kvern::model
