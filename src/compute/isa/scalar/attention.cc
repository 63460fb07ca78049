#include "compute/isa/scalar/vec.h"

#include "compute/isa/attention-inl.h"
