// What special tokens are called: roles that model files leave out, found by well-known names.
//
// The names and the order of these rules are those of llama.cpp, whose ids Kvern reproduces.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "kvern/ids.h"
#include "text/vocab.h"

namespace kvern::text {

// A metadata key that names a token, and the role that the token then has.
struct SpecialIdKey {
  std::string_view key;
  std::optional<TokenId> Vocab::*id;
};
inline constexpr SpecialIdKey kSpecialIdKeys[] = {
    {"tokenizer.ggml.bos_token_id", &Vocab::bos},
    {"tokenizer.ggml.eos_token_id", &Vocab::eos},
    {"tokenizer.ggml.eot_token_id", &Vocab::eot},
    {"tokenizer.ggml.eom_token_id", &Vocab::eom},
    {"tokenizer.ggml.unknown_token_id", &Vocab::unknown},
    {"tokenizer.ggml.seperator_token_id", &Vocab::separator},  // the format spells it so
    {"tokenizer.ggml.padding_token_id", &Vocab::padding},
    {"tokenizer.ggml.mask_token_id", &Vocab::mask},
    {"tokenizer.ggml.fim_pre_token_id", &Vocab::fim_prefix},
    {"tokenizer.ggml.fim_suf_token_id", &Vocab::fim_suffix},
    {"tokenizer.ggml.fim_mid_token_id", &Vocab::fim_middle},
    {"tokenizer.ggml.fim_pad_token_id", &Vocab::fim_padding},
    {"tokenizer.ggml.fim_rep_token_id", &Vocab::fim_repo},
    {"tokenizer.ggml.fim_sep_token_id", &Vocab::fim_separator},
    // Older names, which win where a file has both.
    {"tokenizer.ggml.prefix_token_id", &Vocab::fim_prefix},
    {"tokenizer.ggml.suffix_token_id", &Vocab::fim_suffix},
    {"tokenizer.ggml.middle_token_id", &Vocab::fim_middle},
};

// Fills the roles that `vocab` leaves open (end of turn, fill-in-the-middle, …), corrects the type
// of tokens that are known to be structure, and returns the ids that end a generation, ascending.
// REQUIRES: the ids in `vocab` are below tokens.size(), and no text occurs twice.
std::vector<TokenId> ResolveSpecialTokens(Vocab& vocab);

}  // namespace kvern::text
