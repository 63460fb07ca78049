#include "server/api/field_reader.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

std::optional<int64_t> ToInteger(const Json& value, int64_t low, int64_t high) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return std::nullopt;
  }
  const auto number = value.get<int64_t>();
  if (number < low || number > high) return std::nullopt;
  return number;
}

FieldReader::FieldReader(const Json& object) : object_(object) { CHECK(object.is_object()); }

const Json* FieldReader::Find(const char* name) const {
  if (!ok()) return nullptr;
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> FieldReader::Bool(const char* name) {
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Fail(BadField(name, "must be true or false"));
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Integer(const char* name, int64_t low, int64_t high) {
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  const auto number = ToInteger(*value, low, high);
  if (!number) Fail(BadField(name, fmt::format("must be an integer from {} to {}", low, high)));
  return number;
}

std::optional<size_t> FieldReader::Count(const char* name, size_t low, size_t high) {
  const auto number = Integer(name, static_cast<int64_t>(low), static_cast<int64_t>(high));
  return number ? std::optional<size_t>(static_cast<size_t>(*number)) : std::nullopt;
}

std::optional<std::string> FieldReader::String(const char* name) {
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  Fail(BadField(name, "must be a string"));
  return std::nullopt;
}

std::optional<float> FieldReader::Number(const char* name, float low, float high) {
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const auto number = value->get<double>();
    if (number >= double{low} && number <= double{high}) return static_cast<float>(number);
  }
  Fail(BadField(name, high == std::numeric_limits<float>::max()
                          ? low == -high ? std::string("must be a number")
                                         : fmt::format("must be a number of at least {}", low)
                          : fmt::format("must be a number from {} to {}", low, high)));
  return std::nullopt;
}

const Json* FieldReader::Array(const char* name) {
  const Json* const value = Find(name);
  if (value == nullptr || value->is_array()) return value;
  Fail(BadField(name, "must be an array"));
  return nullptr;
}

const Json* FieldReader::Object(const char* name) {
  const Json* const value = Find(name);
  if (value == nullptr || value->is_object()) return value;
  Fail(BadField(name, "must be an object"));
  return nullptr;
}

void FieldReader::Fail(ApiError error) {
  if (ok()) error_ = std::move(error);
}

}  // namespace kvern::server
