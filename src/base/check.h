// CHECK: for what must be impossible. A failed check prints where and what, and aborts.
//
// What a user, a file or a peer can cause is never a CHECK: it is a Result (base/result.h).
#pragma once

namespace kvern {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace kvern

#define CHECK(condition)                                    \
  do {                                                      \
    if (!(condition)) [[unlikely]]                          \
      ::kvern::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)
