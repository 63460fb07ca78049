// ExpressionParser: expressions, assignment targets and filters, by recursive descent with jinja2's
// precedence.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace kvern::text::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  // An expression; with its inline if unless told otherwise.
  Result<ExprPtr> Expression(bool with_conditional = true);
  // One or more expressions, a tuple if there are commas. Ends also at the name `end`.
  Result<ExprPtr> TupleOrExpression(bool with_conditional = true, std::string_view end = "");
  // A single name, or a tuple of targets that ends at the name `end`.
  Result<Target> AssignTarget(std::string_view end = "");
  Result<std::string> NameTarget();
  // name(arguments) | name ...; the innermost has no input. Behind a first `|` when not inline.
  Result<ExprPtr> FilterChain(ExprPtr input);

 private:
  Result<ExprPtr> Conditional();
  Result<ExprPtr> Logical(bool is_or);
  Result<ExprPtr> Not();
  Result<ExprPtr> Comparison();
  std::optional<CompareOp> TakeCompareOp();
  Result<ExprPtr> Additive();
  Result<ExprPtr> Concat();
  Result<ExprPtr> Multiplicative();
  Result<ExprPtr> Power();
  Result<ExprPtr> Unary(bool with_filter);
  Result<ExprPtr> Primary();
  ExprPtr NameOrConstant(const std::string& name);
  Result<ExprPtr> Number();
  Result<ExprPtr> Parenthesized();
  Result<ExprPtr> ListLiteral();
  Result<ExprPtr> DictLiteral();
  Result<ExprPtr> Postfix(ExprPtr node);
  Result<ExprPtr> FiltersAndTests(ExprPtr node);
  Result<ExprPtr> Subscript(ExprPtr object);
  Result<ExprPtr> Brackets(ExprPtr object);
  Result<ExprPtr> SliceRest(ExprPtr object, ExprPtr start);
  Result<ExprPtr> SliceBound();
  Result<ExprPtr> OneFilter(ExprPtr input);
  Result<ExprPtr> TestRest(ExprPtr subject);
  Result<Arguments> CallArguments();
  Status OneArgument(Arguments& arguments);
  Result<std::string> DottedName();
  bool AtTupleEnd(std::string_view end) const;
  Result<Target> SimpleTarget();

  TokenStream& stream_;
};

}  // namespace kvern::text::jinja
