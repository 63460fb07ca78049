#include "text/jinja/filters.h"

#include <algorithm>
#include <iterator>

namespace kvern::text::jinja {
namespace {

constexpr std::string_view kUnsupported[] = {"filesizeformat", "pprint", "random",   "striptags",
                                             "urlencode",      "urlize", "wordwrap", "xmlattr"};

}  // namespace

const Filter* FindFilter(std::string_view name) {
  for (const auto table : {TextFilters(), NumberFilters(), SequenceFilters()}) {
    for (const Filter& filter : table) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

bool IsUnsupportedFilter(std::string_view name) {
  return std::find(std::begin(kUnsupported), std::end(kUnsupported), name) !=
         std::end(kUnsupported);
}

Error NoSuchFilter(std::string_view name) {
  if (IsUnsupportedFilter(name)) {
    return Errorf(ErrorCode::kUnsupported, "the filter '{}' is not supported", name);
  }
  return TemplateError("No filter named '{}'.", name);
}

Result<Value> CallFilter(Runtime& runtime, std::string_view name, const Value& input,
                         const CallArgs& args) {
  KVERN_RETURN_IF_ERROR(runtime.Step());
  const Filter* const filter = FindFilter(name);
  if (filter == nullptr) return NoSuchFilter(name);
  KVERN_ASSIGN_OR_RETURN(const Args bound, Bind(name, filter->signature, args));
  return filter->run(runtime, input, bound);
}

}  // namespace kvern::text::jinja
