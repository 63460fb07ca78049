#include "compute/isa/scalar/vec.h"

#include "compute/isa/rows-inl.h"

constinit const kvern::compute::RowKernels kvern::compute::kScalarRows = MakeRowKernels("scalar");
