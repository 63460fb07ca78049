#include "text/jinja/signature.h"

#include <algorithm>
#include <string>

#include "text/jinja/runtime.h"

namespace kvern::text::jinja {

Result<Args> Bind(std::string_view function, const Signature& signature, const CallArgs& args) {
  Args bound;
  bound.values.resize(signature.names.size());
  for (size_t i = 0; i < args.positional.size(); ++i) {
    if (i < bound.values.size()) {
      bound.values[i] = args.positional[i];
    } else if (signature.is_variadic) {
      bound.rest.positional.push_back(args.positional[i]);
    } else {
      return TypeError("{}() takes at most {} arguments, got {}", function, signature.names.size(),
                       args.positional.size());
    }
  }
  for (const auto& named : args.named) {
    const auto* const name = std::find(signature.names.begin(), signature.names.end(), named.first);
    if (name == signature.names.end()) {
      if (!signature.is_variadic) {
        return TypeError("{}() got an unexpected keyword argument '{}'", function, named.first);
      }
      bound.rest.named.push_back(named);
      continue;
    }
    auto& slot = bound.values[static_cast<size_t>(name - signature.names.begin())];
    if (slot) return TypeError("{}() got multiple values for argument '{}'", function, named.first);
    slot = named.second;
  }
  for (size_t i = 0; i < signature.num_required; ++i) {
    if (!bound.values[i]) {
      return TypeError("{}() missing required argument '{}'", function, signature.names.begin()[i]);
    }
  }
  return bound;
}

}  // namespace kvern::text::jinja
