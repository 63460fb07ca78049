// The files schemas/*.json, embedded when the server is built: each a JSON object of schemas by
// name. CMakeLists.txt lists them.
#pragma once

#include <span>
#include <string_view>

namespace kvern::server {

std::span<const std::string_view> SchemaFiles();

}  // namespace kvern::server
