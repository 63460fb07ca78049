// Result<T>: a value, or the reason why there is none.
//
// Everything that a file, a user or the machine can make fail returns one. The message is a single
// line for people: it names the file, field or request and says what to do. Copyable if T is;
// thread- compatible like T.
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace kvern {

enum class ErrorCode {
  kInvalidArgument,  // the caller's input is wrong: fix the flag, field or prompt
  kNotFound,         // a file or name does not exist
  kCorrupt,          // bytes from outside break their format
  kUnsupported,      // well-formed, but Kvern cannot do it
  kOutOfMemory,      // would not fit: the message has the numbers
  kNonFinite,        // NaN or infinity in the computation: this request failed, alone
  kIo,               // the operating system refused
};

struct Error {
  ErrorCode code;
  std::string message;
};

// Errorf(ErrorCode::kCorrupt, "{}: tensor {} ends after the file", path, name)
template <typename... Args>
Error Errorf(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }

  // REQUIRES: ok().
  T& value() & {
    CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    CHECK(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // REQUIRES: !ok().
  const Error& error() const {
    CHECK(!ok());
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return !error_.has_value(); }
  const Error& error() const {
    CHECK(!ok());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

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
