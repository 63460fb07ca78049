#define KVERN_ISA avx2vnni
#include "compute/isa/avx2/vec.h"
#include "compute/isa/avx2vnni/dot.h"

// After the vector that it is made of.
#include "compute/isa/attention-inl.h"
