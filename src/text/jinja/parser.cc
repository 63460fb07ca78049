#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "text/jinja/expression_parser.h"
#include "text/jinja/lexer.h"
#include "text/jinja/token_stream.h"

namespace kvern::text::jinja {
namespace {

using Kind = Token::Kind;
using StmtPtr = std::unique_ptr<const Stmt>;
using EndTags = std::initializer_list<std::string_view>;

constexpr std::string_view kUnsupportedTags[] = {"autoescape", "block",  "extends",
                                                 "from",       "import", "include"};

// Restores a variable of the parser's state when a body ends.
template <typename T>
class Scoped {
 public:
  Scoped(T& variable, T value) : variable_(variable), saved_(std::exchange(variable, value)) {}
  ~Scoped() { variable_ = saved_; }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  T& variable_;
  T saved_;
};

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens)
      : stream_(std::move(tokens)), expressions_(stream_) {}

  Result<Body> Template() {
    Result<Body> body = Statements({});
    if (!body.ok()) return AtLine(stream_.line(), body.error());
    if (!stream_.unknown_names.empty()) return stream_.unknown_names.front();
    return body;
  }

 private:
  // Statements up to one of the end tags, which is left as the current token.
  Result<Body> Statements(EndTags ends) {
    const TokenStream::Nest nest(stream_);
    KVERN_RETURN_IF_ERROR(nest.status());
    Body body;
    while (!stream_.Is(Kind::kEnd)) {
      const int line = stream_.line();
      if (stream_.Is(Kind::kData)) {
        body.push_back(std::make_unique<TextStmt>(line, stream_.Take().text));
      } else if (stream_.Is(Kind::kVariableBegin)) {
        stream_.Take();
        KVERN_ASSIGN_OR_RETURN(ExprPtr value, expressions_.TupleOrExpression());
        KVERN_RETURN_IF_ERROR(stream_.ExpectKind(Kind::kVariableEnd, "'}}'"));
        body.push_back(std::make_unique<OutputStmt>(line, std::move(value)));
      } else {
        KVERN_RETURN_IF_ERROR(stream_.ExpectKind(Kind::kBlockBegin, "a tag"));
        const auto is_end = [this](std::string_view end) { return stream_.IsName(end); };
        if (std::any_of(ends.begin(), ends.end(), is_end)) return body;
        KVERN_RETURN_IF_ERROR(Statement(body));
        KVERN_RETURN_IF_ERROR(stream_.ExpectKind(Kind::kBlockEnd, "'%}'"));
      }
    }
    if (ends.size() == 0) return body;
    return TemplateError("unexpected end of template: a tag '{}' is missing",
                         *std::prev(ends.end()));
  }

  // The body of a block tag, from the end of its opening tag.
  Result<Body> BlockBody(EndTags ends) {
    stream_.TakeOperator(":");
    KVERN_RETURN_IF_ERROR(stream_.ExpectKind(Kind::kBlockEnd, "'%}'"));
    return Statements(ends);
  }

  // The body of a tag that opens a scope, and its end tag.
  Result<Body> ScopeBody(std::string_view end) {
    const Scoped<bool> soft(stream_.is_soft, false);
    KVERN_ASSIGN_OR_RETURN(Body body, BlockBody({end}));
    stream_.Take();
    return body;
  }

  // As ScopeBody, in a function of its own: break and continue do not reach out of it.
  Result<Body> FunctionBody(std::string_view end) {
    const Scoped<int> loops(num_loops_, 0);
    return ScopeBody(end);
  }

  Status Statement(Body& body) {
    struct Tag {
      std::string_view name;
      Result<StmtPtr> (StatementParser::*parse)(int line);
    };
    static constexpr Tag kTags[] = {
        {"break", &StatementParser::Jump},    {"call", &StatementParser::CallBlock},
        {"continue", &StatementParser::Jump}, {"filter", &StatementParser::FilterBlock},
        {"for", &StatementParser::For},       {"generation", &StatementParser::Generation},
        {"if", &StatementParser::If},         {"macro", &StatementParser::Macro},
        {"set", &StatementParser::Set},       {"with", &StatementParser::With},
    };
    const int line = stream_.line();
    if (!stream_.Is(Kind::kName)) return stream_.Unexpected("a tag's name");
    if (stream_.TakeName("print")) return Print(line, body);
    const std::string name = stream_.current().text;
    for (const Tag& tag : kTags) {
      if (tag.name != name) continue;
      KVERN_ASSIGN_OR_RETURN(StmtPtr statement, (this->*tag.parse)(line));
      body.push_back(std::move(statement));
      return {};
    }
    for (const std::string_view tag : kUnsupportedTags) {
      if (tag == name) {
        return Errorf(ErrorCode::kUnsupported, "the tag '{}' is not supported", name);
      }
    }
    return TemplateError("Encountered unknown tag '{}'.", name);
  }

  Status Print(int line, Body& body) {
    for (bool is_first = true; !stream_.Is(Kind::kBlockEnd); is_first = false) {
      if (!is_first) KVERN_RETURN_IF_ERROR(stream_.ExpectOperator(","));
      KVERN_ASSIGN_OR_RETURN(ExprPtr value, expressions_.Expression());
      body.push_back(std::make_unique<OutputStmt>(line, std::move(value)));
    }
    return {};
  }

  Result<StmtPtr> Jump(int line) {
    const Flow flow = stream_.IsName("break") ? Flow::kBreak : Flow::kContinue;
    if (num_loops_ == 0) return TemplateError("'{}' outside loop", stream_.current().text);
    stream_.Take();
    return StmtPtr(std::make_unique<JumpStmt>(line, flow));
  }

  Result<StmtPtr> If(int line) {
    const Scoped<bool> soft(stream_.is_soft, true);
    auto node = std::make_unique<IfStmt>(line);
    stream_.Take();
    while (true) {
      KVERN_ASSIGN_OR_RETURN(ExprPtr condition, expressions_.TupleOrExpression(false));
      KVERN_ASSIGN_OR_RETURN(Body body, BlockBody({"elif", "else", "endif"}));
      node->branches.emplace_back(std::move(condition), std::move(body));
      if (stream_.TakeName("elif")) continue;
      if (stream_.TakeName("else")) {
        KVERN_ASSIGN_OR_RETURN(node->else_body, BlockBody({"endif"}));
      }
      stream_.Take();
      return StmtPtr(std::move(node));
    }
  }

  Result<StmtPtr> For(int line) {
    auto node = std::make_unique<ForStmt>(line);
    stream_.Take();
    KVERN_ASSIGN_OR_RETURN(node->target, expressions_.AssignTarget("in"));
    if (!stream_.TakeName("in")) return stream_.Unexpected("'in'");
    KVERN_ASSIGN_OR_RETURN(node->iterable, expressions_.TupleOrExpression(false, "recursive"));
    const Scoped<bool> soft(stream_.is_soft, false);
    if (stream_.TakeName("if")) {
      KVERN_ASSIGN_OR_RETURN(node->filter, expressions_.Expression());
    }
    node->is_recursive = stream_.TakeName("recursive");
    {
      const Scoped<int> loops(num_loops_, num_loops_ + 1);
      KVERN_ASSIGN_OR_RETURN(node->body, BlockBody({"else", "endfor"}));
    }
    if (stream_.TakeName("else")) {
      KVERN_ASSIGN_OR_RETURN(node->else_body, BlockBody({"endfor"}));
    }
    stream_.Take();
    return StmtPtr(std::move(node));
  }

  Result<StmtPtr> Set(int line) {
    stream_.Take();
    KVERN_ASSIGN_OR_RETURN(Target target, expressions_.AssignTarget());
    if (stream_.TakeOperator("=")) {
      auto node = std::make_unique<SetStmt>(line);
      node->target = std::move(target);
      KVERN_ASSIGN_OR_RETURN(node->value, expressions_.TupleOrExpression());
      return StmtPtr(std::move(node));
    }
    auto node = std::make_unique<SetBlockStmt>(line);
    node->target = std::move(target);
    if (stream_.TakeOperator("|")) {
      KVERN_ASSIGN_OR_RETURN(node->filter, expressions_.FilterChain(nullptr));
    }
    KVERN_ASSIGN_OR_RETURN(node->body, ScopeBody("endset"));
    return StmtPtr(std::move(node));
  }

  Status Parameters(MacroBody& macro) {
    KVERN_RETURN_IF_ERROR(stream_.ExpectOperator("("));
    while (!stream_.IsOperator(")")) {
      if (!macro.parameters.empty()) KVERN_RETURN_IF_ERROR(stream_.ExpectOperator(","));
      KVERN_ASSIGN_OR_RETURN(std::string name, expressions_.NameTarget());
      if (stream_.TakeOperator("=")) {
        KVERN_ASSIGN_OR_RETURN(ExprPtr value, expressions_.Expression());
        macro.defaults.push_back(std::move(value));
      } else if (!macro.defaults.empty()) {
        return TemplateError("non-default argument follows default argument");
      }
      macro.parameters.push_back(std::move(name));
    }
    return stream_.ExpectOperator(")");
  }

  Status MacroBodyOf(MacroBody& macro, std::string_view end) {
    stream_.macros.emplace_back();
    Result<Body> body = FunctionBody(end);
    const TokenStream::MacroUses uses = stream_.macros.back();
    stream_.macros.pop_back();
    if (!body.ok()) return body.error();
    macro.body = std::move(body).value();
    macro.uses_caller = uses.caller;
    macro.uses_kwargs = uses.kwargs;
    macro.uses_varargs = uses.varargs;
    return {};
  }

  Result<StmtPtr> Macro(int line) {
    auto node = std::make_unique<MacroStmt>(line);
    stream_.Take();
    KVERN_ASSIGN_OR_RETURN(node->name, expressions_.NameTarget());
    KVERN_RETURN_IF_ERROR(Parameters(node->macro));
    KVERN_RETURN_IF_ERROR(MacroBodyOf(node->macro, "endmacro"));
    return StmtPtr(std::move(node));
  }

  Result<StmtPtr> CallBlock(int line) {
    auto node = std::make_unique<CallBlockStmt>(line);
    stream_.Take();
    if (stream_.IsOperator("(")) KVERN_RETURN_IF_ERROR(Parameters(node->caller));
    KVERN_ASSIGN_OR_RETURN(ExprPtr call, expressions_.Expression());
    if (dynamic_cast<const CallExpr*>(call.get()) == nullptr) return TemplateError("expected call");
    node->call.reset(static_cast<const CallExpr*>(call.release()));
    KVERN_RETURN_IF_ERROR(MacroBodyOf(node->caller, "endcall"));
    return StmtPtr(std::move(node));
  }

  Result<StmtPtr> FilterBlock(int line) {
    auto node = std::make_unique<FilterBlockStmt>(line);
    stream_.Take();
    KVERN_ASSIGN_OR_RETURN(node->filter, expressions_.FilterChain(nullptr));
    KVERN_ASSIGN_OR_RETURN(node->body, ScopeBody("endfilter"));
    return StmtPtr(std::move(node));
  }

  Result<StmtPtr> With(int line) {
    auto node = std::make_unique<WithStmt>(line);
    stream_.Take();
    while (!stream_.Is(Kind::kBlockEnd)) {
      if (!node->variables.empty()) KVERN_RETURN_IF_ERROR(stream_.ExpectOperator(","));
      KVERN_ASSIGN_OR_RETURN(Target target, expressions_.AssignTarget());
      KVERN_RETURN_IF_ERROR(stream_.ExpectOperator("="));
      KVERN_ASSIGN_OR_RETURN(ExprPtr value, expressions_.Expression());
      node->variables.emplace_back(std::move(target), std::move(value));
    }
    KVERN_ASSIGN_OR_RETURN(node->body, ScopeBody("endwith"));
    return StmtPtr(std::move(node));
  }

  Result<StmtPtr> Generation(int line) {
    auto node = std::make_unique<GenerationStmt>(line);
    stream_.Take();
    KVERN_ASSIGN_OR_RETURN(node->body, FunctionBody("endgeneration"));
    return StmtPtr(std::move(node));
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  int num_loops_ = 0;  // enclosing loops that break may leave
};

}  // namespace

Result<Body> Parse(std::string_view source) {
  KVERN_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return StatementParser(std::move(tokens)).Template();
}

}  // namespace kvern::text::jinja
