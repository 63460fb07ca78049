// Which model a command uses when the user names none.
#pragma once

#include <string>

#include "base/result.h"

namespace kvern::cli {

// `flag` (the value of -m) if there is one; else the environment's KVERN_MODEL; else the model that
// scripts/setup puts into build/models, found from where this program lies.
// Errors: kNotFound where there is none of these.
Result<std::string> FindModel(const std::string& flag);

}  // namespace kvern::cli
