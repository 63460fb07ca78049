// The dashboard's sources, as CMake put them into the program: a page with places for {{style}} and
// {{script}}, and what belongs there.
#pragma once

#include <string_view>

namespace kvern::server {

extern const std::string_view kPageHtml;
extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace kvern::server
