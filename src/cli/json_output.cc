#include "cli/json_output.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace kvern::cli {

std::string ToJsonText(const nlohmann::ordered_json& document) {
  using nlohmann::ordered_json;
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void PrintJson(const nlohmann::ordered_json& document) { fmt::print("{}", ToJsonText(document)); }

}  // namespace kvern::cli
