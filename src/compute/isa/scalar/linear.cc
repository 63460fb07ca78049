#include "compute/isa/scalar/vec.h"

#include "compute/isa/linear-inl.h"
