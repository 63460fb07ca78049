// What K/V of a model depends on beside its tokens, as the KV library wants to know it (rule K12):
// digests of weights and tokenizer, the configuration in effect, and how rows lie in a block.
//
// The digest of the weights reads every byte of every tensor once, on all threads of the team, and
// lets go of the pages: tens of milliseconds for a small model, far less than packing takes.
#pragma once

#include "base/thread_team.h"
#include "compute/kv_layout.h"
#include "kvern/kv.h"
#include "model/config.h"
#include "model/gguf.h"

namespace kvern::engine {

// `config` is that in effect, overrides applied.
kv::NamespaceSpec MakeNamespaceSpec(const model::Gguf& gguf, const model::ModelConfig& config,
                                    const compute::KvLayout& layout, ThreadTeam& team);

}  // namespace kvern::engine
