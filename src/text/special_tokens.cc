#include "text/special_tokens.h"

#include <set>
#include <string_view>
#include <unordered_map>

namespace kvern::text {
namespace {

// A role that a token has in a conversation or in code completion. The first name that the
// vocabulary has, fills it.
struct Role {
  std::optional<TokenId> Vocab::*id;
  std::vector<std::string_view> names;
  bool ends_generation = false;
};

const std::vector<Role>& Roles() {
  static const std::vector<Role> kRoles = {
      {.id = &Vocab::eot,
       .names = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
                 "<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>",
                 "<end_of_utterance>"},
       .ends_generation = true},
      {.id = &Vocab::eom, .names = {"<|eom_id|>"}, .ends_generation = true},
      {.id = &Vocab::fim_prefix,
       .names = {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>",
                 "▁<PRE>", "<|code_prefix|>", "<|prefix|>"}},
      {.id = &Vocab::fim_suffix,
       .names = {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>",
                 "▁<SUF>", "<|code_suffix|>", "<|suffix|>"}},
      {.id = &Vocab::fim_middle,
       .names = {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>",
                 "▁<MID>", "<|code_middle|>", "<|middle|>"}},
      {.id = &Vocab::fim_padding,
       .names = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"},
       .ends_generation = true},
      {.id = &Vocab::fim_repo,
       .names = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"},
       .ends_generation = true},
      {.id = &Vocab::fim_separator, .names = {"<|file_sep|>"}, .ends_generation = true},
  };
  return kRoles;
}

// All of these end a generation, wherever they occur.
constexpr std::string_view kEndNames[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
};

// Structure that is part of what the model says: always rendered.
constexpr std::string_view kRenderedNames[] = {"<|channel|>", "<|message|>", "<|start|>",
                                               "<|constrain|>"};

class Resolver {
 public:
  explicit Resolver(Vocab& vocab) : vocab_(vocab) {
    for (size_t i = 0; i < vocab.tokens.size(); ++i) {
      ids_.emplace(vocab.tokens[i].text, static_cast<TokenId>(i));
    }
  }

  std::vector<TokenId> Resolve() {
    for (const Role& role : Roles()) FillRole(role);
    for (const std::string_view name : kEndNames) {
      if (const auto id = Find(name)) {
        ends_.insert(*id);
        SetType(*id, TokenType::kControl);
      }
    }
    for (const std::string_view name : kRenderedNames) {
      if (const auto id = Find(name)) SetType(*id, TokenType::kUserDefined);
    }
    for (const auto& id : {vocab_.eos, vocab_.eot, vocab_.eom}) {
      if (id) ends_.insert(*id);
    }
    KeepMessagesGoing();
    return {ends_.begin(), ends_.end()};
  }

 private:
  std::optional<TokenId> Find(std::string_view text) const {
    const auto found = ids_.find(text);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }

  void SetType(TokenId id, TokenType type) { vocab_.tokens[static_cast<size_t>(id)].type = type; }

  bool Ends(std::string_view name) const {
    const auto id = Find(name);
    return id && ends_.contains(*id);
  }

  void FillRole(const Role& role) {
    std::optional<TokenId>& id = vocab_.*role.id;
    for (size_t i = 0; !id && i < role.names.size(); ++i) {
      id = Find(role.names[i]);
      if (id) SetType(*id, TokenType::kControl);
    }
    if (id && role.ends_generation) ends_.insert(*id);
  }

  // Two families use a name in kEndNames for something that does not end their reply.
  void KeepMessagesGoing() {
    const bool has_call = Ends("<|call|>") || Ends("<|calls|>");
    if (has_call && (Ends("<|return|>") || Ends("<|flush|>")) && Ends("<|end|>")) {
      ends_.erase(*Find("<|end|>"));
      SetType(*Find("<|end|>"), TokenType::kUserDefined);
    }
    if ((Ends("<|tool_response>") || Ends("<|plamo:eos|>")) && Ends("</s>")) {
      ends_.erase(*Find("</s>"));
      SetType(*Find("</s>"), TokenType::kNormal);
    }
  }

  Vocab& vocab_;
  std::unordered_map<std::string_view, TokenId> ids_;
  std::set<TokenId> ends_;
};

}  // namespace

std::vector<TokenId> ResolveSpecialTokens(Vocab& vocab) { return Resolver(vocab).Resolve(); }

}  // namespace kvern::text
