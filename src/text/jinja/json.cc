#include "text/jinja/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "text/jinja/convert.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace kvern::text::jinja {
namespace {

void AppendEscape(char32_t c, std::string& out) {
  if (c < 0x10000) {
    out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    return;
  }
  const uint32_t offset = static_cast<uint32_t>(c) - 0x10000;
  out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
}

std::string Quote(const std::string& text, bool ensure_ascii) {
  std::string out = "\"";
  for (const char32_t c : Decode(text)) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (c < 0x20 || (ensure_ascii && c > 0x7E)) {
          AppendEscape(c, out);
        } else {
          AppendUtf8(c, out);
        }
    }
  }
  return out + "\"";
}

class Dumper {
 public:
  Dumper(Runtime& runtime, const DumpOptions& options) : runtime_(runtime), options_(options) {}

  Status Dump(const Value& value, int level) {
    const Runtime::Level guard(runtime_);
    KVERN_RETURN_IF_ERROR(guard.status());
    KVERN_RETURN_IF_ERROR(runtime_.Step());
    if (out_.size() > runtime_.limits().allocated_bytes) return runtime_.Charge(out_.size());
    if (value.is_dict()) return DumpDict(value.dict(), level);
    if (value.is_list() &&
        (value.list().flavor == List::Flavor::kList || value.list().is_tuple())) {
      return DumpList(value.items(), level);
    }
    KVERN_ASSIGN_OR_RETURN(const std::string scalar, Scalar(value));
    out_ += scalar;
    return {};
  }

  std::string Take() { return std::move(out_); }

 private:
  Result<std::string> Scalar(const Value& value) const {
    switch (value.kind()) {
      case Value::Kind::kNone:
        return std::string("null");
      case Value::Kind::kBool:
        return std::string(value.as_bool() ? "true" : "false");
      case Value::Kind::kInt:
        return std::to_string(value.as_int());
      case Value::Kind::kFloat:
        if (std::isnan(value.as_float())) return std::string("NaN");
        if (std::isinf(value.as_float())) {
          return std::string(value.as_float() < 0 ? "-Infinity" : "Infinity");
        }
        return FloatRepr(value.as_float());
      case Value::Kind::kString:
        return Quote(value.str(), options_.ensure_ascii);
      default:
        return TypeError("Object of type {} is not JSON serializable", value.type_name());
    }
  }

  void NewLine(int level) {
    if (!options_.indent) return;
    out_.push_back('\n');
    for (int i = 0; i < level; ++i) out_ += *options_.indent;
  }

  void Separate(bool is_first, int level) {
    if (!is_first) out_ += options_.item_separator;
    NewLine(level);
  }

  Status DumpList(const std::vector<Value>& items, int level) {
    out_.push_back('[');
    for (size_t i = 0; i < items.size(); ++i) {
      Separate(i == 0, level + 1);
      KVERN_RETURN_IF_ERROR(Dump(items[i], level + 1));
    }
    if (!items.empty()) NewLine(level);
    out_.push_back(']');
    return {};
  }

  Status DumpDict(const Dict& dict, int level) {
    std::vector<Dict::Entry> entries = dict.entries();
    if (options_.sort_keys) KVERN_RETURN_IF_ERROR(Sort(entries));
    out_.push_back('{');
    bool is_first = true;
    for (const auto& [key, value] : entries) {
      Separate(std::exchange(is_first, false), level + 1);
      if (key.is_list() || key.is_object()) {
        return TypeError("keys must be str, int, float, bool or None, not {}", key.type_name());
      }
      KVERN_ASSIGN_OR_RETURN(const std::string name, Scalar(key));
      out_ += key.is_string() ? name : Quote(name, options_.ensure_ascii);
      out_ += options_.key_separator;
      KVERN_RETURN_IF_ERROR(Dump(value, level + 1));
    }
    if (!entries.empty()) NewLine(level);
    out_.push_back('}');
    return {};
  }

  Status Sort(std::vector<Dict::Entry>& entries) {
    Status status;
    std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
      if (!status.ok()) return false;
      const Result<bool> less = Less(runtime_, a.first, b.first);
      if (!less.ok()) status = less.error();
      return less.ok() && *less;
    });
    return status;
  }

  Runtime& runtime_;
  const DumpOptions& options_;
  std::string out_;
};

}  // namespace

Result<Value> FromJson(const nlohmann::ordered_json& json, int max_depth) {
  if (max_depth < 0) return Errorf(ErrorCode::kInvalidArgument, "JSON is nested too deeply");
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return Value::Bool(json.get<bool>());
    case Type::number_integer:
      return Value::Int(json.get<int64_t>());
    case Type::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > INT64_MAX) return Value::Float(static_cast<double>(number));
      return Value::Int(static_cast<int64_t>(number));
    }
    case Type::number_float:
      return Value::Float(json.get<double>());
    case Type::string:
      return Value::MakeString(json.get<std::string>());
    case Type::array: {
      std::vector<Value> items;
      for (const auto& item : json) {
        KVERN_ASSIGN_OR_RETURN(Value value, FromJson(item, max_depth - 1));
        items.push_back(std::move(value));
      }
      return Value::MakeList(std::move(items));
    }
    case Type::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) {
        KVERN_ASSIGN_OR_RETURN(Value value, FromJson(item, max_depth - 1));
        dict.Set(key, std::move(value));
      }
      return Value::MakeDict(std::move(dict));
    }
    default:
      return Value::None();
  }
}

Result<std::string> DumpJson(Runtime& runtime, const Value& value, const DumpOptions& options) {
  Dumper dumper(runtime, options);
  KVERN_RETURN_IF_ERROR(dumper.Dump(value, 0));
  std::string text = dumper.Take();
  KVERN_RETURN_IF_ERROR(runtime.Charge(text.size()));
  return text;
}

}  // namespace kvern::text::jinja
