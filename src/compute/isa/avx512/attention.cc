#include "compute/isa/avx512/dot.h"
#include "compute/isa/avx512/vec.h"

// After the vector that it is made of.
#include "compute/isa/attention-inl.h"
