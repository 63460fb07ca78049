// Isa: the kernels of one instruction set. One row of Isas() each; all rows give the same bits.
//
// Chosen once at start-up and passed to whoever computes. Constant data: safe from any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "compute/attention.h"
#include "compute/linear.h"
#include "compute/peak.h"
#include "compute/rows.h"

namespace kvern::compute {

struct Isa {
  std::string_view name;  // as --isa spells it
  bool (*supported)();    // by this CPU
  const RowKernels* rows;
  const LinearKernels* linear;
  const AttentionKernels* attention;
  const PeakKernels* peak;  // null in an emulation
};

// Slowest first. The first, scalar, defines the results and runs everywhere.
std::span<const Isa> Isas();

// The row named `name` ("auto": the fastest that this CPU runs). Errors: kInvalidArgument for an
// unknown name, kUnsupported where the CPU lacks it; both list what would do.
Result<const Isa*> SelectIsa(std::string_view name);

}  // namespace kvern::compute
