#include "text/jinja/item_getter.h"

#include <algorithm>

#include "text/jinja/attributes.h"
#include "text/jinja/convert.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_algorithms.h"
#include "text/jinja/unicode.h"

namespace kvern::text::jinja {

ItemGetter::ItemGetter(const Value& attribute, bool ignores_case, std::optional<Value> fallback)
    : ignores_case_(ignores_case), fallback_(std::move(fallback)) {
  if (attribute.is_none()) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  for (const std::string& part : SplitOn(attribute.str(), ".", -1, false)) {
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    const std::optional<int64_t> index = is_number ? ParseInt(part, 10) : std::nullopt;
    parts_.push_back(index ? Value::Int(*index) : Value::MakeString(part));
  }
}

Result<Value> ItemGetter::Get(Runtime& runtime, Value item) const {
  for (const Value& part : parts_) {
    KVERN_RETURN_IF_ERROR(runtime.Step());
    KVERN_ASSIGN_OR_RETURN(item, GetItem(runtime, item, part));
    if (fallback_ && item.is_undefined()) item = *fallback_;
  }
  if (ignores_case_ && item.is_string()) return runtime.NewString(ToLower(item.str()));
  return item;
}

Status SortByKey(Runtime& runtime, std::vector<Keyed>& items, bool reverse) {
  Status status;
  // Reversed around the sort, equal items keep their order in both directions.
  if (reverse) std::reverse(items.begin(), items.end());
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    if (!status.ok()) return false;
    if (Status step = runtime.Step(); !step.ok()) {
      status = step;
      return false;
    }
    const Result<bool> less = Less(runtime, a.key, b.key);
    if (!less.ok()) status = less.error();
    return less.ok() && *less;
  });
  if (reverse) std::reverse(items.begin(), items.end());
  return status;
}

}  // namespace kvern::text::jinja
