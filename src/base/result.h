// Making and passing on Results (kvern/result.h).
#pragma once

#include <fmt/core.h>

#include <utility>

#include "base/check.h"
#include "kvern/result.h"

namespace kvern {

// Errorf(ErrorCode::kCorrupt, "{}: tensor {} ends after the file", path, name)
template <typename... Args>
Error Errorf(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace kvern

// Returns the error of `expression` (a Result) from the enclosing function, if it has one.
#define KVERN_RETURN_IF_ERROR(expression)                       \
  do {                                                          \
    if (auto kvern_status = (expression); !kvern_status.ok()) { \
      return kvern_status.error();                              \
    }                                                           \
  } while (false)

#define KVERN_CONCAT_INNER(a, b) a##b
#define KVERN_CONCAT(a, b) KVERN_CONCAT_INNER(a, b)

// KVERN_ASSIGN_OR_RETURN(auto file, OpenFile(path)): declares `file`, or returns the error.
#define KVERN_ASSIGN_OR_RETURN(declaration, expression) \
  KVERN_ASSIGN_OR_RETURN_IMPL(KVERN_CONCAT(kvern_result_, __LINE__), declaration, expression)
#define KVERN_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                        \
  if (!result.ok()) return result.error();                           \
  declaration = std::move(result).value()
