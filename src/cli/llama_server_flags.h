// Flags of `kvern serve` that users of llama-server know, beside those that it shares with Kvern's
// other commands: defaults of requests, the chat template, which endpoints there are.
//
// Those that cannot mean anything here are taken, and noted for the log; --context-shift, which
// would change answers, is refused (docs/serving.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/context.h"

namespace CLI {
class App;
}

namespace kvern::cli {

struct LlamaServerFlags {
  server::RequestDefaults defaults;
  std::string template_name;  // of a built-in one, or a template
  std::string template_file;
  bool is_kv_unified = false;
  bool has_context_shift = false;
  std::vector<std::string> notes;  // "FLAG: why it does nothing", in the order that they came
};

// `options` are those of the server that they set.
void AddLlamaServerFlags(CLI::App& app, LlamaServerFlags& flags, server::ServerOptions& options);

// Errors: kInvalidArgument names the flag.
Status CheckLlamaServerFlags(const LlamaServerFlags& flags);

// The Jinja source of a chat template.
struct NamedTemplate {
  std::string source;
  bool is_builtin = false;  // writes BOS for models that want it; the others do not
};

// The template that flags name, or none. Errors: kInvalidArgument names the flag; those of reading.
Result<std::optional<NamedTemplate>> ReadNamedTemplate(const LlamaServerFlags& flags);

}  // namespace kvern::cli
