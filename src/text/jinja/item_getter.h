// ItemGetter: the `attribute=` argument of filters: "a.b", 0, or nothing for the item itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

class ItemGetter {
 public:
  // `attribute`: a string of parts joined by dots, or any key; none reads the item itself.
  explicit ItemGetter(const Value& attribute, bool ignores_case = false,
                      std::optional<Value> fallback = std::nullopt);

  Result<Value> Get(Runtime& runtime, Value item) const;

 private:
  std::vector<Value> parts_;
  bool ignores_case_;              // lowers strings
  std::optional<Value> fallback_;  // for what is undefined
};

// Sorts by keys, stably; an error when two keys do not compare.
struct Keyed {
  Value key;
  Value item;
};
Status SortByKey(Runtime& runtime, std::vector<Keyed>& items, bool reverse);

}  // namespace kvern::text::jinja
