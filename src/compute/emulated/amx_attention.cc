#include "compute/emulated/avx512.h"
// After the instruction set that its vector is made of.
#include "compute/isa/amx/attention.cc"
