#include "compute/isa/avx2/vec.h"

#include "compute/isa/rows-inl.h"

constinit const kvern::compute::RowKernels kvern::compute::kAvx2Rows = MakeRowKernels("avx2");
