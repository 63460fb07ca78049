// Names threads, so that tools which list them (top -H, /proc, gdb) say whose time it is.
#pragma once

#include <pthread.h>

namespace kvern {

// Of the calling thread; 15 characters at most.
inline void NameThisThread(const char* name) { ::pthread_setname_np(::pthread_self(), name); }

}  // namespace kvern
