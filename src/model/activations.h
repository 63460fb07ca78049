// Activations: one matrix of inputs, packed for the linear kernels in the forms that its weights
// read (compute/linear.h).
//
// Tokens are grouped in tiles of kTokenTile, the last one smaller. Threads may pack different
// tokens at once; everyone may read after a barrier.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "compute/isa.h"
#include "compute/packed_matrix.h"

namespace kvern::model {

// The forms that weights read.
struct InputForms {
  bool quantized = false;
  bool floats = false;

  void Add(const compute::PackedMatrix& weights) {
    (weights.format().quantized_input ? quantized : floats) = true;
  }
};

class Activations {
 public:
  // Room for `max_tokens` of up to `max_cols` inputs.
  static Result<Activations> Create(uint32_t max_tokens, uint32_t max_cols, InputForms forms);

  // Starts a matrix of num_tokens × cols, to be multiplied with each of `readers`, whose width cols
  // is. REQUIRES: their forms and the size are within what was created.
  void Reset(uint32_t num_tokens, std::initializer_list<const compute::PackedMatrix*> readers);

  // Packs one token's inputs. False if one that is to be quantised is not finite.
  bool Pack(const compute::LinearKernels& kernels, const float* x, uint32_t token);

  // out[t · out_stride + r] for rows [16·first_tile, 16·end_tile) of `weights` and all tokens t.
  void Multiply(const compute::LinearKernels& kernels, const compute::PackedMatrix& weights,
                uint32_t first_tile, uint32_t end_tile, float* out, size_t out_stride) const;

  uint32_t num_tokens() const { return num_tokens_; }
  size_t bytes() const { return quantized_.bytes() + floats_.bytes(); }

 private:
  uint32_t TileTokens(uint32_t tile) const;
  const std::byte* Tile(uint32_t tile, bool quantized) const;

  AlignedBuffer quantized_;
  AlignedBuffer floats_;
  InputForms forms_;
  uint32_t num_tokens_ = 0;
  uint32_t cols_ = 0;
};

}  // namespace kvern::model
