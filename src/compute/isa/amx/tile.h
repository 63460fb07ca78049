// The tile registers of AMX, as far as integer attention needs them.
//
// A tile holds up to 16 rows of up to 64 bytes; instructions name it by a number from 0 to 7.
// Shapes are set before use and given up afterwards, so that no thread carries tiles through a
// switch. In assembly: gcc 12's intrinsics do not tell the compiler which memory they read.
#pragma once

#include <cstddef>

#include "compute/isa/amx/tile_shapes.h"
#include "compute/isa/avx512/vec.h"

#ifdef KVERN_EMULATED
#include "compute/emulated/amx.h"
#else

namespace {

KVERN_INLINE void ConfigureTiles(const TileShapes& shapes) {
  asm volatile("ldtilecfg %0" : : "m"(shapes));
}
KVERN_INLINE void ReleaseTiles() { asm volatile("tilerelease"); }

template <int kTile>
KVERN_INLINE void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kTile>
KVERN_INLINE void LoadTile(const void* rows, size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
KVERN_INLINE void StoreTile(void* rows, size_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(rows), "r"(stride), "i"(kTile) : "memory");
}

// sums[m][n] += Σ a[m][4k + i] · b[k][4n + i] over dwords k and their bytes i, exactly.
template <int kSums, int kA, int kB>
KVERN_INLINE void DotSignedUnsigned() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
}
template <int kSums, int kA, int kB>
KVERN_INLINE void DotUnsignedSigned() {
  asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
}

}  // namespace

#endif
