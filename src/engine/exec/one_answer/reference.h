// Reference: what each request is answered alone, without the prefix cache, which is what every
// other way must give. Computed when first asked for, and kept.
//
// Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "engine/exec/one_answer/lab.h"
#include "engine/exec/one_answer/requests.h"

namespace kvern::engine::one_answer {

struct ReferenceAnswer {
  RequestAnswer answer;
  LogitHashes logits;
};

class Reference {
 public:
  // `lab` must outlive it. K and V are stored as these types.
  Reference(Lab* lab, std::string k_dtype, std::string v_dtype)
      : lab_(*lab), key_{.k_dtype = std::move(k_dtype), .v_dtype = std::move(v_dtype)} {}

  // Valid as long as this. Errors: why it was not answered.
  Result<const ReferenceAnswer*> Of(const Case& asked);
  Result<RequestAnswer> Answer(const Request& request);

  // Computes the first tokens of the answer once more, each from the whole history without any
  // cache, by other code than the engine's (engine/generation.h). What differs, or none.
  Result<std::optional<std::string>> CheckWithoutCache(const Case& asked);

 private:
  Result<ReferenceAnswer> Compute(const Request& request);
  Result<std::optional<std::string>> CheckCompletion(const Case& asked, uint32_t completion,
                                                     const ReferenceAnswer& expected);

  Lab& lab_;
  const ModelKey key_;
  std::map<std::string, std::unique_ptr<ReferenceAnswer>> answers_;  // by name
};

}  // namespace kvern::engine::one_answer
