// The escapes of Python string literals, as jinja2 resolves them.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace kvern::text::jinja {

// `body`: what stands between the quotes. Unknown escapes stay as they are.
Result<std::string> ResolveEscapes(std::string_view body);

}  // namespace kvern::text::jinja
