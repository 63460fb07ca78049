// Trace: the life of a KV cache as it happens, one line an event (kvern run --trace).
//
//   kv allocate      48 tokens   1.1 MiB
//   kv bulk write    34 tokens   765.0 KiB   positions 0 … 33
//   kv append         1 token     22.5 KiB   position 34
//   kv read          34 tokens   765.0 KiB
//   kv free          48 tokens   1.1 MiB
#pragma once

#include <functional>
#include <string>

#include "engine/generation.h"
#include "kv/sequence_cache.h"

namespace kvern::cli {

using LineSink = std::function<void(const std::string& line)>;

// Makes `options` report to `sink`, which must stay callable as long as the generation lives.
void TraceTo(engine::GenerationOptions& options, LineSink sink);

}  // namespace kvern::cli
