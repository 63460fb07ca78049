// Runtime: the budget of one rendering, and the world that is passed into it.
//
// A template is untrusted input: every loop pays steps, every string and list pays the bytes that
// it allocates, every nested evaluation takes a level. Running out is an error that names the
// limit, never a hang, a stack overflow or an exhausted machine.
//
// Not thread-safe: one rendering, one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

struct Limits {
  uint64_t steps = 20'000'000;               // evaluated nodes and visited elements
  int depth = 500;                           // nested evaluations, nested data
  size_t output_bytes = size_t{64} << 20;    // rendered text
  size_t allocated_bytes = size_t{1} << 30;  // strings and lists made on the way, in total
};

// A calendar time in the user's zone, for strftime_now. Fields as in std::tm, by other names.
struct LocalTime {
  int year = 1970;
  int month = 1;  // 1 to 12
  int day = 1;    // 1 to 31
  int hour = 0;
  int minute = 0;
  int second = 0;
};

class Runtime {
 public:
  Runtime(const Limits& limits, const LocalTime& now) : limits_(limits), now_(now) {}

  Status Step(uint64_t count = 1);
  // Before making something of `bytes`.
  Status Charge(size_t bytes);
  Status CheckDepth(int depth) const;

  // Takes a level for the lifetime of the guard; `status()` says whether there was one.
  class [[nodiscard]] Level {
   public:
    explicit Level(Runtime& runtime) : runtime_(runtime) { ++runtime_.depth_; }
    ~Level() { --runtime_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Status status() const { return runtime_.CheckDepth(runtime_.depth_); }

   private:
    Runtime& runtime_;
  };

  const Limits& limits() const { return limits_; }
  const LocalTime& now() const { return now_; }

  // Factories that charge what they make.
  Result<Value> NewString(std::string bytes, bool is_safe = false);
  Result<Value> NewList(std::vector<Value> items, List::Flavor flavor = List::Flavor::kList);
  Result<Value> NewDict(Dict dict);
  Result<Value> NewIterator(std::shared_ptr<Iterator> iterator);

 private:
  Limits limits_;
  LocalTime now_;
  uint64_t steps_ = 0;
  size_t allocated_bytes_ = 0;
  int depth_ = 0;
};

// Python's iter(x): over elements, characters or keys. An error when `value` is not iterable.
Result<std::shared_ptr<Iterator>> Iterate(Runtime& runtime, const Value& value);
// Python's list(x).
Result<std::vector<Value>> Collect(Runtime& runtime, const Value& value);

// An error of the template, not of its data: kCorrupt.
template <typename... Args>
Error TemplateError(fmt::format_string<Args...> format, Args&&... args) {
  return Errorf(ErrorCode::kCorrupt, format, std::forward<Args>(args)...);
}
// Python's TypeError and kin: an operation that these operands do not have.
template <typename... Args>
Error TypeError(fmt::format_string<Args...> format, Args&&... args) {
  return Errorf(ErrorCode::kCorrupt, format, std::forward<Args>(args)...);
}
// Use of an undefined value.
inline Error UndefinedError(const Value& value) {
  return Error{ErrorCode::kCorrupt, value.undefined().message};
}

}  // namespace kvern::text::jinja
