// Architecture: one row of the table of model families, one file each in this folder.
//
// To add one: write arch/<name>.cc with its row, declare it in table.cc. The tests run over every
// row of the table.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "model/config.h"

namespace kvern::model {

struct Architecture {
  std::string_view name;  // general.architecture
  // Shape, constants and which optional parts the decoder (model/forward.h) has.
  Result<ModelConfig> (*read_config)(const Gguf& gguf);
};

std::span<const Architecture* const> Architectures();

// Finds the row by general.architecture and reads the configuration. Errors: kUnsupported lists the
// names that exist.
Result<ModelConfig> ReadConfig(const Gguf& gguf);

}  // namespace kvern::model
