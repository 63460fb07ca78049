// Activations: one matrix of inputs, packed for the linear kernels in the forms that its weights
// read (compute/linear.h).
//
// Tokens are grouped in the fewest tiles of at most kTokenTile, as equal as they can be, so that no
// tile is left with a token or two. ActivationBuffer owns the memory; Activations is a view of it,
// a plain value that every thread makes for itself. Threads may pack different tokens or columns at
// once; everyone may read after a barrier.
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

class ActivationBuffer {
 public:
  // Room for `max_tokens` of up to `max_cols` inputs.
  static Result<ActivationBuffer> Create(uint32_t max_tokens, uint32_t max_cols, InputForms forms);

  size_t bytes() const { return quantized_.bytes() + floats_.bytes(); }

 private:
  friend class Activations;

  AlignedBuffer quantized_;
  AlignedBuffer floats_;
};

class Activations {
 public:
  // A matrix of num_tokens × cols, to be multiplied with each of `readers`, whose width cols is.
  // The buffer must outlive it. REQUIRES: forms and size are within what the buffer has room for.
  Activations(ActivationBuffer& buffer, uint32_t num_tokens,
              std::initializer_list<const compute::PackedMatrix*> readers);

  // Packs one token's inputs. False if one that is to be quantised is not finite.
  bool Pack(const compute::LinearKernels& kernels, const float* x, uint32_t token) const {
    return PackColumns(kernels, x, token, 0, cols_);
  }
  // Packs columns [first, first + count) of a token from x[0 … count). For quantised forms, both
  // are multiples of 32.
  bool PackColumns(const compute::LinearKernels& kernels, const float* x, uint32_t token,
                   uint32_t first, uint32_t count) const;

  // out[t · out_stride + r - 16·first_tile] for rows r in [16·first_tile, 16·end_tile) of `weights`
  // and all tokens t.
  void Multiply(const compute::LinearKernels& kernels, const compute::PackedMatrix& weights,
                uint32_t first_tile, uint32_t end_tile, float* out, size_t out_stride) const;

  uint32_t num_tokens() const { return num_tokens_; }

 private:
  // Tokens [first, first + count) of the matrix.
  struct TokenTile {
    uint32_t first;
    uint32_t count;
  };
  uint32_t NumTiles() const;
  TokenTile TileAt(uint32_t index) const;
  TokenTile TileOf(uint32_t token) const;
  std::byte* Memory(TokenTile tile, bool quantized) const;

  std::byte* quantized_;
  std::byte* floats_;
  uint32_t num_tokens_;
  uint32_t cols_;
  InputForms forms_;
};

}  // namespace kvern::model
