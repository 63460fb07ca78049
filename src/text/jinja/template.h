// Template: a chat template, parsed once and rendered for every conversation.
//
// A subset of jinja2 as the transformers library sets it up; docs/chat-templates.md lists it.
// Errors are one line, prefixed with "line N: ":
//   kInvalidArgument  the template refuses this conversation: raise_exception's message as it is
//   kUnsupported      a construct that Kvern does not have, named
//   kOutOfMemory      a limit was reached, named
//   kCorrupt          the template is wrong, or needs data that is not there
//
// Immutable and thread-safe: threads may render one template at the same time. Copies are cheap.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

class Template {
 public:
  static Result<Template> Parse(const std::string& source);

  // `context`: the variables that the template sees.
  Result<std::string> Render(const Dict& context, const LocalTime& now,
                             const Limits& limits = Limits()) const;

 private:
  struct Tree;
  explicit Template(std::shared_ptr<const Tree> tree) : tree_(std::move(tree)) {}
  std::shared_ptr<const Tree> tree_;
};

}  // namespace kvern::text::jinja
