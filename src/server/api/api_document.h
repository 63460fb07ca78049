// The OpenAPI document of the server: its routes and their schemas, as tools of clients read it.
//
// Functions of their arguments, any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "server/api/routes.h"

namespace kvern::server {

// All schemas by name.
nlohmann::ordered_json ApiSchemas();

// Paths stand as in the table, without their other forms (with or without /v1).
nlohmann::ordered_json ApiDocument(std::span<const Route> routes, bool needs_key);

}  // namespace kvern::server
