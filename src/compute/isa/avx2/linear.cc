#include "compute/isa/avx2/vec.h"

#include "compute/isa/linear-inl.h"
