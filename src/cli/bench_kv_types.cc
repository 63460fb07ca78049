#include "cli/bench_kv_types.h"

#include <algorithm>

#include "cli/engine_flags.h"

namespace kvern::cli {

std::string NameOf(const KvTypes& types) {
  std::string name(compute::GetKvDtype(types.k).name);
  if (types.v != types.k) name.append("/").append(compute::GetKvDtype(types.v).name);
  return name;
}

Result<std::vector<KvTypes>> ParseKvTypes(const char* flag, const std::vector<std::string>& names) {
  std::vector<KvTypes> list = {kF16Types};
  for (const std::string& name : names) {
    const size_t slash = name.find('/');
    const std::string v_name = slash == std::string::npos ? name : name.substr(slash + 1);
    KvTypes types;
    KVERN_ASSIGN_OR_RETURN(types.k, ParseKvDtype(flag, name.substr(0, slash)));
    KVERN_ASSIGN_OR_RETURN(types.v, ParseKvDtype(flag, v_name));
    if (std::ranges::find(list, types) == list.end()) list.push_back(types);
  }
  return list;
}

}  // namespace kvern::cli
