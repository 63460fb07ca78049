#include "compute/isa/avx512/vec.h"

#include "compute/isa/linear-inl.h"
