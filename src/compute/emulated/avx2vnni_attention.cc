#include "compute/emulated/vnni.h"
// After the instruction that it lacks.
#include "compute/isa/avx2vnni/attention.cc"
