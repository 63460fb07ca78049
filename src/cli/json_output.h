// How commands print JSON: one document, indented by two, always valid UTF-8.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kvern::cli {

// Bytes of strings that are not UTF-8 become U+FFFD. Ends with a newline.
std::string ToJsonText(const nlohmann::ordered_json& document);

// ToJsonText, to standard output.
void PrintJson(const nlohmann::ordered_json& document);

}  // namespace kvern::cli
