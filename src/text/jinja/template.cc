#include "text/jinja/template.h"

#include <utility>

#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace kvern::text::jinja {

struct Template::Tree {
  Body body;
};

Result<Template> Template::Parse(const std::string& source) {
  KVERN_ASSIGN_OR_RETURN(Body body, jinja::Parse(source));
  return Template(std::make_shared<const Tree>(Tree{std::move(body)}));
}

Result<std::string> Template::Render(const Dict& context, const LocalTime& now,
                                     const Limits& limits) const {
  return Interpreter(limits, now, context).Render(tree_->body);
}

}  // namespace kvern::text::jinja
