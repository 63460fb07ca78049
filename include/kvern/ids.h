// Ids that several modules share. Ids are types, so that a token is never taken for a position.
#pragma once

#include <cstdint>

namespace kvern {

// Index into a model's vocabulary.
enum class TokenId : uint32_t {};

}  // namespace kvern
