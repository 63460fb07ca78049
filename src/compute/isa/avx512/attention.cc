#include "compute/isa/avx512/vec.h"

#include "compute/isa/attention-inl.h"
