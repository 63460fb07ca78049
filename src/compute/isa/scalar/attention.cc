#include "compute/isa/scalar/dot.h"
#include "compute/isa/scalar/vec.h"

// After the vector that it is made of.
#include "compute/isa/attention-inl.h"
