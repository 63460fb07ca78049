// Parser: from a template's source to its syntax tree.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja/ast.h"

namespace kvern::text::jinja {

// Errors are prefixed with their line; what Kvern lacks is kUnsupported and named. Sources nested
// deeper than 200 levels are refused.
Result<Body> Parse(std::string_view source);

}  // namespace kvern::text::jinja
