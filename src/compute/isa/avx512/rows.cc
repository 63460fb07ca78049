#include "compute/isa/avx512/vec.h"

#include "compute/isa/rows-inl.h"

constinit const kvern::compute::RowKernels kvern::compute::kAvx512Rows = MakeRowKernels("avx512");
