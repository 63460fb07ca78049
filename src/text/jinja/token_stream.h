// TokenStream: the parser's view of its tokens, and the state that both of its halves share.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/lexer.h"
#include "text/jinja/runtime.h"

namespace kvern::text::jinja {

class TokenStream {
 public:
  static constexpr int kMaxHeight = 200;

  // REQUIRES: `tokens` ends with kEnd.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return current().line; }
  bool Is(Token::Kind kind) const { return current().kind == kind; }
  bool IsOperator(std::string_view symbol) const { return current().IsOperator(symbol); }
  bool IsName(std::string_view name) const { return current().IsName(name); }

  // Moves on, except from the end.
  Token Take() {
    Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool TakeOperator(std::string_view symbol) { return IsOperator(symbol) && (Take(), true); }
  bool TakeName(std::string_view name) { return IsName(name) && (Take(), true); }

  Status ExpectOperator(std::string_view symbol) {
    if (TakeOperator(symbol)) return {};
    return Unexpected(fmt::format("'{}'", symbol));
  }
  Result<std::string> ExpectName() {
    if (!Is(Token::Kind::kName)) return Unexpected("a name");
    return Take().text;
  }
  Status ExpectKind(Token::Kind kind, std::string_view description) {
    if (!Is(kind)) return Unexpected(description);
    Take();
    return {};
  }

  Error Unexpected(std::string_view wanted) const {
    return TemplateError("expected {}, got {}", wanted, Describe(current()));
  }
  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case Token::Kind::kEnd:
        return "the end of the template";
      case Token::Kind::kVariableEnd:
        return "'}}'";
      case Token::Kind::kBlockEnd:
        return "'%}'";
      case Token::Kind::kData:
        return "text";
      default:
        return fmt::format("'{}'", token.text);
    }
  }

  // One level of the syntax tree; `status()` says whether it may be that high. Extend() adds levels
  // for trees that grow in a loop.
  class [[nodiscard]] Nest {
   public:
    explicit Nest(TokenStream& stream) : stream_(stream) { Extend(); }
    ~Nest() { stream_.height_ -= levels_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;
    void Extend() {
      ++levels_;
      ++stream_.height_;
    }
    Status status() const {
      if (stream_.height_ <= kMaxHeight) return {};
      return Errorf(ErrorCode::kOutOfMemory, "the template is nested deeper than {} levels",
                    kMaxHeight);
    }

   private:
    TokenStream& stream_;
    int levels_ = 0;
  };

  // --- What both halves know ---

  // Inside an if, jinja2 looks filters and tests up when they run, elsewhere before anything runs.
  bool is_soft = false;
  std::vector<Error> unknown_names;
  // Special names that the enclosing macros' bodies mention.
  struct MacroUses {
    bool caller = false;
    bool kwargs = false;
    bool varargs = false;
  };
  std::vector<MacroUses> macros;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int height_ = 0;
};

}  // namespace kvern::text::jinja
