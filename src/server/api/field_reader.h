// FieldReader: takes typed fields out of a JSON object that a client sent, and remembers the first
// that is wrong.
//
// A field that is absent or null leaves its default. After an error nothing more is read, so that a
// caller reads all fields and then asks once. One thread; the object must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "server/api/api_error.h"

namespace kvern::server {

class FieldReader {
 public:
  // REQUIRES: `object` is one.
  explicit FieldReader(const nlohmann::ordered_json& object);

  // The field, if it is there, not null, and no error has been found.
  const nlohmann::ordered_json* Find(const char* name) const;

  std::optional<bool> Bool(const char* name);
  std::optional<int64_t> Integer(const char* name, int64_t low, int64_t high);
  std::optional<size_t> Count(const char* name, size_t low, size_t high);
  std::optional<std::string> String(const char* name);

  // What remains in [low, high] as a float.
  std::optional<float> Number(const char* name, float low, float high);

  const nlohmann::ordered_json* Array(const char* name);
  const nlohmann::ordered_json* Object(const char* name);

  // Later errors are not remembered.
  void Fail(ApiError error);
  bool ok() const { return !error_.has_value(); }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const nlohmann::ordered_json& object_;
  std::optional<ApiError> error_;
};

// `value` as an integer in [low, high], if it is one.
std::optional<int64_t> ToInteger(const nlohmann::ordered_json& value, int64_t low, int64_t high);

}  // namespace kvern::server
