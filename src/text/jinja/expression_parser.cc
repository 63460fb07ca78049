#include "text/jinja/expression_parser.h"

#include <utility>

#include "text/jinja/convert.h"
#include "text/jinja/filters.h"
#include "text/jinja/tests.h"

namespace kvern::text::jinja {
namespace {

using Kind = Token::Kind;

struct BinarySymbol {
  std::string_view symbol;
  BinaryOp op;
};
constexpr BinarySymbol kAdditive[] = {{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSub}};
constexpr BinarySymbol kMultiplicative[] = {{"*", BinaryOp::kMul},
                                            {"/", BinaryOp::kDiv},
                                            {"//", BinaryOp::kFloorDiv},
                                            {"%", BinaryOp::kMod}};

template <size_t kSize>
std::optional<BinaryOp> TakeBinary(TokenStream& stream, const BinarySymbol (&symbols)[kSize]) {
  for (const BinarySymbol& symbol : symbols) {
    if (stream.TakeOperator(symbol.symbol)) return symbol.op;
  }
  return std::nullopt;
}

}  // namespace

Result<ExprPtr> ExpressionParser::Expression(bool with_conditional) {
  const TokenStream::Nest nest(stream_);
  KVERN_RETURN_IF_ERROR(nest.status());
  return with_conditional ? Conditional() : Logical(true);
}

Result<ExprPtr> ExpressionParser::Conditional() {
  TokenStream::Nest nest(stream_);
  const size_t num_unknown = stream_.unknown_names.size();
  KVERN_ASSIGN_OR_RETURN(ExprPtr value, Logical(true));
  while (stream_.TakeName("if")) {
    nest.Extend();
    KVERN_RETURN_IF_ERROR(nest.status());
    auto node = std::make_unique<ConditionalExpr>();
    node->then_value = std::move(value);
    KVERN_ASSIGN_OR_RETURN(node->condition, Logical(true));
    if (stream_.TakeName("else")) {
      KVERN_ASSIGN_OR_RETURN(node->else_value, Conditional());
    }
    // Everything under an inline if is looked up when it runs.
    stream_.unknown_names.resize(num_unknown, Error{});
    value = std::move(node);
  }
  return value;
}

Result<ExprPtr> ExpressionParser::Logical(bool is_or) {
  TokenStream::Nest nest(stream_);
  KVERN_ASSIGN_OR_RETURN(ExprPtr left, is_or ? Logical(false) : Not());
  while (stream_.TakeName(is_or ? "or" : "and")) {
    nest.Extend();
    KVERN_RETURN_IF_ERROR(nest.status());
    KVERN_ASSIGN_OR_RETURN(ExprPtr right, is_or ? Logical(false) : Not());
    left = std::make_unique<LogicalExpr>(is_or, std::move(left), std::move(right));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::Not() {
  if (!stream_.TakeName("not")) return Comparison();
  const TokenStream::Nest nest(stream_);
  KVERN_RETURN_IF_ERROR(nest.status());
  KVERN_ASSIGN_OR_RETURN(ExprPtr operand, Not());
  return ExprPtr(std::make_unique<NotExpr>(std::move(operand)));
}

std::optional<CompareOp> ExpressionParser::TakeCompareOp() {
  constexpr std::pair<std::string_view, CompareOp> kSymbols[] = {
      {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<", CompareOp::kLt},
      {"<=", CompareOp::kLe}, {">", CompareOp::kGt},  {">=", CompareOp::kGe}};
  for (const auto& [symbol, op] : kSymbols) {
    if (stream_.TakeOperator(symbol)) return op;
  }
  if (stream_.TakeName("in")) return CompareOp::kIn;
  if (stream_.IsName("not") && stream_.ahead().IsName("in")) {
    stream_.Take();
    stream_.Take();
    return CompareOp::kNotIn;
  }
  return std::nullopt;
}

Result<ExprPtr> ExpressionParser::Comparison() {
  KVERN_ASSIGN_OR_RETURN(ExprPtr first, Additive());
  auto node = std::make_unique<ComparisonExpr>();
  while (const std::optional<CompareOp> op = TakeCompareOp()) {
    KVERN_ASSIGN_OR_RETURN(ExprPtr operand, Additive());
    node->rest.emplace_back(*op, std::move(operand));
  }
  if (node->rest.empty()) return first;
  node->first = std::move(first);
  return ExprPtr(std::move(node));
}

Result<ExprPtr> ExpressionParser::Additive() {
  TokenStream::Nest nest(stream_);
  KVERN_ASSIGN_OR_RETURN(ExprPtr left, Concat());
  while (const std::optional<BinaryOp> op = TakeBinary(stream_, kAdditive)) {
    nest.Extend();
    KVERN_RETURN_IF_ERROR(nest.status());
    KVERN_ASSIGN_OR_RETURN(ExprPtr right, Concat());
    left = std::make_unique<BinaryExpr>(*op, std::move(left), std::move(right));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::Concat() {
  KVERN_ASSIGN_OR_RETURN(ExprPtr first, Multiplicative());
  if (!stream_.IsOperator("~")) return first;
  auto node = std::make_unique<ConcatExpr>();
  node->parts.push_back(std::move(first));
  while (stream_.TakeOperator("~")) {
    KVERN_ASSIGN_OR_RETURN(ExprPtr part, Multiplicative());
    node->parts.push_back(std::move(part));
  }
  return ExprPtr(std::move(node));
}

Result<ExprPtr> ExpressionParser::Multiplicative() {
  TokenStream::Nest nest(stream_);
  KVERN_ASSIGN_OR_RETURN(ExprPtr left, Power());
  while (const std::optional<BinaryOp> op = TakeBinary(stream_, kMultiplicative)) {
    nest.Extend();
    KVERN_RETURN_IF_ERROR(nest.status());
    KVERN_ASSIGN_OR_RETURN(ExprPtr right, Power());
    left = std::make_unique<BinaryExpr>(*op, std::move(left), std::move(right));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::Power() {
  TokenStream::Nest nest(stream_);
  KVERN_ASSIGN_OR_RETURN(ExprPtr left, Unary(true));
  while (stream_.TakeOperator("**")) {
    nest.Extend();
    KVERN_RETURN_IF_ERROR(nest.status());
    KVERN_ASSIGN_OR_RETURN(ExprPtr right, Unary(true));
    left = std::make_unique<BinaryExpr>(BinaryOp::kPow, std::move(left), std::move(right));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::Unary(bool with_filter) {
  const TokenStream::Nest nest(stream_);
  KVERN_RETURN_IF_ERROR(nest.status());
  ExprPtr node;
  if (stream_.IsOperator("-") || stream_.IsOperator("+")) {
    const bool is_negative = stream_.Take().text == "-";
    KVERN_ASSIGN_OR_RETURN(ExprPtr operand, Unary(false));
    node = std::make_unique<SignExpr>(is_negative, std::move(operand));
  } else {
    KVERN_ASSIGN_OR_RETURN(node, Primary());
  }
  KVERN_ASSIGN_OR_RETURN(node, Postfix(std::move(node)));
  return with_filter ? FiltersAndTests(std::move(node)) : Result<ExprPtr>(std::move(node));
}

Result<ExprPtr> ExpressionParser::Primary() {
  switch (stream_.current().kind) {
    case Kind::kName:
      return NameOrConstant(stream_.Take().text);
    case Kind::kString: {
      std::string text;
      while (stream_.Is(Kind::kString)) text += stream_.Take().text;
      return ExprPtr(std::make_unique<ConstantExpr>(Value::MakeString(std::move(text))));
    }
    case Kind::kInteger:
    case Kind::kFloat:
      return Number();
    default:
      break;
  }
  if (stream_.TakeOperator("(")) return Parenthesized();
  if (stream_.TakeOperator("[")) return ListLiteral();
  if (stream_.TakeOperator("{")) return DictLiteral();
  return TemplateError("unexpected {}", TokenStream::Describe(stream_.current()));
}

ExprPtr ExpressionParser::NameOrConstant(const std::string& name) {
  if (name == "true" || name == "True") return std::make_unique<ConstantExpr>(Value::Bool(true));
  if (name == "false" || name == "False") return std::make_unique<ConstantExpr>(Value::Bool(false));
  if (name == "none" || name == "None") return std::make_unique<ConstantExpr>(Value::None());
  for (TokenStream::MacroUses& uses : stream_.macros) {
    uses.caller |= name == "caller";
    uses.kwargs |= name == "kwargs";
    uses.varargs |= name == "varargs";
  }
  return std::make_unique<NameExpr>(name);
}

Result<ExprPtr> ExpressionParser::Number() {
  const Token token = stream_.Take();
  if (token.kind == Kind::kFloat) {
    return ExprPtr(
        std::make_unique<ConstantExpr>(Value::Float(ParseFloat(token.text).value_or(0))));
  }
  const std::optional<int64_t> value = ParseInt(token.text, 0);
  if (!value) {
    return Errorf(ErrorCode::kUnsupported, "integer {} does not fit 64 bits", token.text);
  }
  return ExprPtr(std::make_unique<ConstantExpr>(Value::Int(*value)));
}

Result<ExprPtr> ExpressionParser::Parenthesized() {
  ExprPtr node;
  if (stream_.IsOperator(")")) {
    node = std::make_unique<ListExpr>(std::vector<ExprPtr>(), List::Flavor::kTuple);
  } else {
    KVERN_ASSIGN_OR_RETURN(node, TupleOrExpression());
  }
  KVERN_RETURN_IF_ERROR(stream_.ExpectOperator(")"));
  return node;
}

bool ExpressionParser::AtTupleEnd(std::string_view end) const {
  return stream_.Is(Kind::kVariableEnd) || stream_.Is(Kind::kBlockEnd) || stream_.IsOperator(")") ||
         (!end.empty() && stream_.IsName(end));
}

Result<ExprPtr> ExpressionParser::TupleOrExpression(bool with_conditional, std::string_view end) {
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (!AtTupleEnd(end)) {
    KVERN_ASSIGN_OR_RETURN(ExprPtr item, Expression(with_conditional));
    items.push_back(std::move(item));
    if (!stream_.TakeOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) {
    return ExprPtr(std::make_unique<ListExpr>(std::move(items), List::Flavor::kTuple));
  }
  if (items.empty()) return stream_.Unexpected("an expression");
  return std::move(items.front());
}

Result<ExprPtr> ExpressionParser::ListLiteral() {
  std::vector<ExprPtr> items;
  while (!stream_.IsOperator("]")) {
    if (!items.empty()) {
      KVERN_RETURN_IF_ERROR(stream_.ExpectOperator(","));
      if (stream_.IsOperator("]")) break;
    }
    KVERN_ASSIGN_OR_RETURN(ExprPtr item, Expression());
    items.push_back(std::move(item));
  }
  KVERN_RETURN_IF_ERROR(stream_.ExpectOperator("]"));
  return ExprPtr(std::make_unique<ListExpr>(std::move(items), List::Flavor::kList));
}

Result<ExprPtr> ExpressionParser::DictLiteral() {
  auto node = std::make_unique<DictExpr>();
  while (!stream_.IsOperator("}")) {
    if (!node->entries.empty()) {
      KVERN_RETURN_IF_ERROR(stream_.ExpectOperator(","));
      if (stream_.IsOperator("}")) break;
    }
    KVERN_ASSIGN_OR_RETURN(ExprPtr key, Expression());
    KVERN_RETURN_IF_ERROR(stream_.ExpectOperator(":"));
    KVERN_ASSIGN_OR_RETURN(ExprPtr value, Expression());
    node->entries.emplace_back(std::move(key), std::move(value));
  }
  KVERN_RETURN_IF_ERROR(stream_.ExpectOperator("}"));
  return ExprPtr(std::move(node));
}

Result<ExprPtr> ExpressionParser::Postfix(ExprPtr node) {
  TokenStream::Nest nest(stream_);
  while (true) {
    nest.Extend();
    KVERN_RETURN_IF_ERROR(nest.status());
    if (stream_.TakeOperator(".")) {
      KVERN_ASSIGN_OR_RETURN(node, Subscript(std::move(node)));
    } else if (stream_.TakeOperator("[")) {
      KVERN_ASSIGN_OR_RETURN(node, Brackets(std::move(node)));
    } else if (stream_.IsOperator("(")) {
      KVERN_ASSIGN_OR_RETURN(Arguments arguments, CallArguments());
      node = std::make_unique<CallExpr>(std::move(node), std::move(arguments));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> ExpressionParser::FiltersAndTests(ExprPtr node) {
  TokenStream::Nest nest(stream_);
  while (true) {
    nest.Extend();
    KVERN_RETURN_IF_ERROR(nest.status());
    if (stream_.TakeOperator("|")) {
      KVERN_ASSIGN_OR_RETURN(node, OneFilter(std::move(node)));
    } else if (stream_.TakeName("is")) {
      KVERN_ASSIGN_OR_RETURN(node, TestRest(std::move(node)));
    } else if (stream_.IsOperator("(")) {
      KVERN_ASSIGN_OR_RETURN(Arguments arguments, CallArguments());
      node = std::make_unique<CallExpr>(std::move(node), std::move(arguments));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> ExpressionParser::Subscript(ExprPtr object) {
  if (stream_.Is(Kind::kName)) {
    return ExprPtr(std::make_unique<AttributeExpr>(std::move(object), stream_.Take().text));
  }
  if (!stream_.Is(Kind::kInteger)) return stream_.Unexpected("a name or number");
  KVERN_ASSIGN_OR_RETURN(ExprPtr key, Number());
  return ExprPtr(std::make_unique<ItemExpr>(std::move(object), std::move(key)));
}

Result<ExprPtr> ExpressionParser::Brackets(ExprPtr object) {
  std::vector<ExprPtr> keys;
  while (!stream_.IsOperator("]")) {
    if (!keys.empty()) KVERN_RETURN_IF_ERROR(stream_.ExpectOperator(","));
    if (stream_.IsOperator(":")) {
      if (!keys.empty())
        return Errorf(ErrorCode::kUnsupported, "slices in tuples are not supported");
      return SliceRest(std::move(object), nullptr);
    }
    KVERN_ASSIGN_OR_RETURN(ExprPtr key, Expression());
    if (stream_.IsOperator(":")) {
      if (!keys.empty())
        return Errorf(ErrorCode::kUnsupported, "slices in tuples are not supported");
      return SliceRest(std::move(object), std::move(key));
    }
    keys.push_back(std::move(key));
  }
  KVERN_RETURN_IF_ERROR(stream_.ExpectOperator("]"));
  ExprPtr key;
  if (keys.size() == 1) {
    key = std::move(keys.front());
  } else {
    key = std::make_unique<ListExpr>(std::move(keys), List::Flavor::kTuple);
  }
  return ExprPtr(std::make_unique<ItemExpr>(std::move(object), std::move(key)));
}

Result<ExprPtr> ExpressionParser::SliceBound() {
  if (stream_.IsOperator(":") || stream_.IsOperator("]")) return ExprPtr();
  return Expression();
}

Result<ExprPtr> ExpressionParser::SliceRest(ExprPtr object, ExprPtr start) {
  auto node = std::make_unique<SliceExpr>();
  node->object = std::move(object);
  node->start = std::move(start);
  KVERN_RETURN_IF_ERROR(stream_.ExpectOperator(":"));
  KVERN_ASSIGN_OR_RETURN(node->stop, SliceBound());
  if (stream_.TakeOperator(":")) {
    KVERN_ASSIGN_OR_RETURN(node->step, SliceBound());
  }
  if (stream_.IsOperator(",")) {
    return Errorf(ErrorCode::kUnsupported, "slices in tuples are not supported");
  }
  KVERN_RETURN_IF_ERROR(stream_.ExpectOperator("]"));
  return ExprPtr(std::move(node));
}

Result<std::string> ExpressionParser::DottedName() {
  KVERN_ASSIGN_OR_RETURN(std::string name, stream_.ExpectName());
  while (stream_.TakeOperator(".")) {
    KVERN_ASSIGN_OR_RETURN(const std::string part, stream_.ExpectName());
    name += "." + part;
  }
  return name;
}

Result<ExprPtr> ExpressionParser::OneFilter(ExprPtr input) {
  const int line = stream_.line();
  KVERN_ASSIGN_OR_RETURN(std::string name, DottedName());
  if (FindFilter(name) == nullptr && !stream_.is_soft) {
    stream_.unknown_names.push_back(AtLine(line, NoSuchFilter(name)));
  }
  Arguments arguments;
  if (stream_.IsOperator("(")) {
    KVERN_ASSIGN_OR_RETURN(arguments, CallArguments());
  }
  return ExprPtr(
      std::make_unique<FilterExpr>(std::move(input), std::move(name), std::move(arguments)));
}

Result<ExprPtr> ExpressionParser::FilterChain(ExprPtr input) {
  TokenStream::Nest nest(stream_);
  KVERN_ASSIGN_OR_RETURN(ExprPtr node, OneFilter(std::move(input)));
  while (stream_.TakeOperator("|")) {
    nest.Extend();
    KVERN_RETURN_IF_ERROR(nest.status());
    KVERN_ASSIGN_OR_RETURN(node, OneFilter(std::move(node)));
  }
  return node;
}

Result<ExprPtr> ExpressionParser::TestRest(ExprPtr subject) {
  const int line = stream_.line();
  const bool is_negated = stream_.TakeName("not");
  KVERN_ASSIGN_OR_RETURN(std::string name, DottedName());
  if (FindTest(name) == nullptr && !stream_.is_soft) {
    stream_.unknown_names.push_back(AtLine(line, NoSuchTest(name)));
  }
  Arguments arguments;
  const Token& next = stream_.current();
  const bool is_value = next.kind == Kind::kName || next.kind == Kind::kString ||
                        next.kind == Kind::kInteger || next.kind == Kind::kFloat ||
                        next.IsOperator("[") || next.IsOperator("{");
  if (next.IsOperator("(")) {
    KVERN_ASSIGN_OR_RETURN(arguments, CallArguments());
  } else if (is_value && !next.IsName("else") && !next.IsName("or") && !next.IsName("and")) {
    if (next.IsName("is")) return TemplateError("You cannot chain multiple tests with is");
    KVERN_ASSIGN_OR_RETURN(ExprPtr argument, Primary());
    KVERN_ASSIGN_OR_RETURN(argument, Postfix(std::move(argument)));
    arguments.positional.push_back(std::move(argument));
  }
  ExprPtr node =
      std::make_unique<TestExpr>(std::move(subject), std::move(name), std::move(arguments));
  if (is_negated) node = std::make_unique<NotExpr>(std::move(node));
  return node;
}

Result<Arguments> ExpressionParser::CallArguments() {
  Arguments arguments;
  KVERN_RETURN_IF_ERROR(stream_.ExpectOperator("("));
  for (bool is_first = true; !stream_.IsOperator(")"); is_first = false) {
    if (!is_first) {
      KVERN_RETURN_IF_ERROR(stream_.ExpectOperator(","));
      if (stream_.IsOperator(")")) break;
    }
    KVERN_RETURN_IF_ERROR(OneArgument(arguments));
  }
  KVERN_RETURN_IF_ERROR(stream_.ExpectOperator(")"));
  return arguments;
}

Status ExpressionParser::OneArgument(Arguments& arguments) {
  const Error misplaced = TemplateError("invalid syntax for function call expression");
  if (stream_.TakeOperator("*")) {
    if (arguments.star || arguments.double_star) return misplaced;
    KVERN_ASSIGN_OR_RETURN(arguments.star, Expression());
    return {};
  }
  if (stream_.TakeOperator("**")) {
    if (arguments.double_star) return misplaced;
    KVERN_ASSIGN_OR_RETURN(arguments.double_star, Expression());
    return {};
  }
  if (arguments.double_star) return misplaced;
  if (stream_.Is(Kind::kName) && stream_.ahead().IsOperator("=")) {
    std::string name = stream_.Take().text;
    stream_.Take();
    KVERN_ASSIGN_OR_RETURN(ExprPtr value, Expression());
    arguments.named.emplace_back(std::move(name), std::move(value));
    return {};
  }
  if (arguments.star || !arguments.named.empty()) return misplaced;
  KVERN_ASSIGN_OR_RETURN(ExprPtr value, Expression());
  arguments.positional.push_back(std::move(value));
  return {};
}

Result<std::string> ExpressionParser::NameTarget() {
  KVERN_ASSIGN_OR_RETURN(std::string name, stream_.ExpectName());
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant) return TemplateError("can't assign to '{}'", name);
  }
  return name;
}

Result<Target> ExpressionParser::SimpleTarget() {
  const TokenStream::Nest nest(stream_);
  KVERN_RETURN_IF_ERROR(nest.status());
  Target target;
  if (stream_.TakeOperator("(")) {
    KVERN_ASSIGN_OR_RETURN(target, AssignTarget());
    KVERN_RETURN_IF_ERROR(stream_.ExpectOperator(")"));
    return target;
  }
  KVERN_ASSIGN_OR_RETURN(target.name, NameTarget());
  if (stream_.TakeOperator(".")) {
    KVERN_ASSIGN_OR_RETURN(target.attribute, stream_.ExpectName());
  }
  return target;
}

Result<Target> ExpressionParser::AssignTarget(std::string_view end) {
  KVERN_ASSIGN_OR_RETURN(Target first, SimpleTarget());
  if (!stream_.IsOperator(",")) return first;
  Target tuple;
  tuple.is_tuple = true;
  tuple.items.push_back(std::move(first));
  while (stream_.TakeOperator(",")) {
    if (AtTupleEnd(end) || stream_.IsOperator("=")) break;
    KVERN_ASSIGN_OR_RETURN(Target next, SimpleTarget());
    tuple.items.push_back(std::move(next));
  }
  return tuple;
}

}  // namespace kvern::text::jinja
