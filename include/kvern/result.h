// Result<T>: a value, or the reason why there is none.
//
// Everything that a file, a user or the machine can make fail returns one. The message is a single
// line for people: it names the file, field or request and says what to do. Copyable if T is;
// thread-compatible like T. Asking a Result for what it does not hold prints so and aborts.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace kvern {

enum class ErrorCode {
  kInvalidArgument,  // the caller's input is wrong: fix the flag, field or prompt
  kNotFound,         // a file or name does not exist
  kCorrupt,          // bytes from outside break their format
  kUnsupported,      // well-formed, but Kvern cannot do it
  kOutOfMemory,      // would not fit: the message has the numbers
  kNonFinite,        // NaN or infinity in the computation: this request failed, alone
  kOverloaded,       // too much waits already: try again later
  kIo,               // the operating system refused
};

struct Error {
  ErrorCode code;
  std::string message;
};

[[noreturn]] void ResultStateFailed();

inline void RequireState(bool holds) {
  if (!holds) [[unlikely]]
    ResultStateFailed();
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }

  // REQUIRES: ok().
  T& value() & {
    RequireState(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    RequireState(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    RequireState(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // REQUIRES: !ok().
  const Error& error() const {
    RequireState(!ok());
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
    RequireState(!ok());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace kvern
