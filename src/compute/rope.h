// RopeTable: cosines and sines of rotary position embedding, fixed at load (rule N8).
//
// Pair i of a head turns by position · frequency(i), in double by own functions, and the cosine and
// sine are rounded to float once. The table depends on the model and on the largest position only,
// never on a request. rows.h has the kernels that turn a head by it.
//
// Immutable after Create; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"

namespace kvern::compute {

struct RopeSpec {
  uint32_t dims = 0;                // that rotate, even
  double base = 10000.0;            // > 0
  double linear_factor = 1.0;       // > 0; positions are divided by it
  std::vector<float> factors = {};  // empty, or one positive divisor per pair (llama3 scaling)
};

// frequency(i) = base^(-2i / dims) / factors[i] / linear_factor, for i < dims / 2.
// Error: kInvalidArgument, naming the field of the spec.
Result<std::vector<double>> RopeFrequencies(const RopeSpec& spec);

class RopeTable {
 public:
  RopeTable() = default;

  // A table for positions [0, num_positions). Errors: kInvalidArgument (the spec, or angles beyond
  // kMaxAngle), kOutOfMemory.
  static Result<RopeTable> Create(const RopeSpec& spec, uint32_t num_positions);

  // dims / 2 floats each. position < num_positions().
  const float* cos(uint32_t position) const { return row(position); }
  const float* sin(uint32_t position) const { return row(position) + num_pairs_; }

  uint32_t dims() const { return 2 * num_pairs_; }
  uint32_t num_positions() const { return num_positions_; }
  size_t bytes() const { return values_.bytes(); }

 private:
  // Cosines of a position, then its sines.
  const float* row(uint32_t position) const {
    return values_.as<float>() + size_t{position} * 2 * num_pairs_;
  }

  uint32_t num_pairs_ = 0;
  uint32_t num_positions_ = 0;
  AlignedBuffer values_;
};

}  // namespace kvern::compute
