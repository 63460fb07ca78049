#include "compute/isa/avx2/dot.h"
#include "compute/isa/avx2/vec.h"

// After the vector that it is made of.
#include "compute/isa/attention-inl.h"
