#include "base/check.h"

#include <cstdio>
#include <cstdlib>

#include "kvern/result.h"

namespace kvern {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, condition);
  std::abort();
}

void ResultStateFailed() {
  std::fprintf(stderr, "a Result was asked for what it does not hold: see ok() first\n");
  std::abort();
}

}  // namespace kvern
