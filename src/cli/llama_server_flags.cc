#include "cli/llama_server_flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <memory>
#include <utility>

#include "base/mapped_file.h"
#include "text/chat_template.h"

namespace kvern::cli {
namespace {

struct IgnoredFlag {
  const char* name;
  bool has_value;
  const char* why;
};

const IgnoredFlag kIgnoredFlags[] = {
    {"--jinja,--no-jinja", false, "chat templates are always Jinja's"},
    {"--reasoning-format", true, "what a model thinks is told as it says it"},
    {"--ubatch-size", true, "a step has at most --batch-size tokens"},
    {"--n-gpu-layers,--gpu-layers", true, "there is no GPU"},
    {"--cont-batching,--no-cont-batching", false, "requests are always batched as they come"},
    {"--flash-attn", true, "there is one attention, which is exact"},
    {"--swa-full", false, "each layer keeps what it needs"},
    {"--backend-sampling,--backend_sampling", false, "there is one way of sampling"},
    {"--cache-ram", true, "--kv-tokens is the memory of all prompts"},
    {"--cache-idle-slots,--no-cache-idle-slots", false, "what was computed stays in the cache"},
    {"--cache-reuse", true, "text is found again wherever prompts begin alike, and only there"},
    {"--slot-prompt-similarity", true, "sequences have no slots"},
    {"--no-context-shift", false, "a full context ends an answer"},
    {"--mlock", false, "weights are packed into memory of the program's own"},
    {"--mmap,--no-mmap", false, "weights are packed into memory of the program's own"},
    {"--numa", true, "memory is where the system puts it"},
    {"--threads-batch", true, "--threads is for prompts too"},
    {"--threads-http", true, "one thread moves all bytes"},
    {"--timeout", true, "--write-timeout, --body-timeout and --idle-timeout are apart"},
    {"--warmup,--no-warmup", false, "there is nothing to warm up"},
    {"--offline", false, "models are files of this machine"},
    {"--log-disable", false, "little is logged"},
};

void AddIgnoredFlags(CLI::App& app, LlamaServerFlags& flags) {
  const std::string group = "Taken without effect";
  for (const IgnoredFlag& flag : kIgnoredFlags) {
    const auto note = [&flags, &flag](const std::string&) {
      flags.notes.push_back(fmt::format("without effect: {}: {}", flag.name, flag.why));
    };
    if (flag.has_value) {
      app.add_option_function<std::string>(flag.name, note, flag.why)->group(group);
    } else {
      app.add_flag_callback(
             flag.name, [note] { note({}); }, flag.why)
          ->group(group);
    }
  }
}

void AddDefaultFlags(CLI::App& app, server::RequestDefaults& defaults) {
  const std::string group = "Fields that requests leave away";
  const auto add = [&](const std::string& name, auto& target, const std::string& help) {
    app.add_option(name, target, help)->group(group);
  };
  add("--temp", defaults.temperature, "Temperature (default: as the endpoint's protocol says)");
  add("--top-k", defaults.top_k, "Keep the k most likely tokens");
  add("--top-p", defaults.top_p, "Keep the most likely tokens up to this probability");
  add("--min-p", defaults.min_p, "Drop tokens less likely than this share of the best");
  add("--repeat-penalty", defaults.repetition_penalty, "Penalty on repeated tokens");
  add("--repeat-last-n", defaults.repetition_window, "Tokens that it looks back on; -1 is all");
  add("--presence-penalty", defaults.presence_penalty, "Penalty on tokens of the answer so far");
  add("--frequency-penalty", defaults.frequency_penalty, "The same, for each time they occurred");
  app.add_option_function<int64_t>(
         "-s,--seed",
         [&defaults](int64_t seed) {
           defaults.seed =
               seed < 0 ? std::nullopt : std::optional<uint64_t>(static_cast<uint64_t>(seed));
         },
         "Seed of the draws; -1 draws one for each (default)")
      ->group(group);
  app.add_option_function<int64_t>(
         "-n,--predict,--n-predict",
         [&defaults](int64_t count) {
           defaults.max_tokens =
               count <= 0 ? std::nullopt : std::optional<size_t>(static_cast<size_t>(count));
         },
         "Tokens of an answer; -1 is what the context allows (default)")
      ->envname("LLAMA_ARG_N_PREDICT")
      ->group(group);
  app.add_flag("--ignore-eos", defaults.ignore_end, "Go on where the model would end")
      ->group(group);
  app.add_flag("--cache-prompt,!--no-cache-prompt", defaults.use_cache,
               "Use the prefix cache (default: yes)")
      ->envname("LLAMA_ARG_CACHE_PROMPT")
      ->group(group);
  app.add_flag("-v,--verbose", defaults.is_verbose,
               "Replies say the prompt that was computed, as __verbose")
      ->group(group);
}

bool IsName(const std::string& text) {
  return std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

void AddLlamaServerFlags(CLI::App& app, LlamaServerFlags& flags, server::ServerOptions& options) {
  AddDefaultFlags(app, flags.defaults);
  app.add_option("--chat-template", flags.template_name,
                 "Name of a built-in chat template, or one in Jinja (default: the model's)")
      ->envname("LLAMA_ARG_CHAT_TEMPLATE");
  app.add_option("--chat-template-file", flags.template_file, "File of a chat template in Jinja")
      ->envname("LLAMA_ARG_CHAT_TEMPLATE_FILE");
  app.add_option_function<std::string>(
         "--reasoning",
         [&flags](const std::string& choice) {
           flags.defaults.thinking =
               choice == "auto" ? std::nullopt : std::optional(choice == "on");
         },
         "Whether templates are told that the model may think: on, off, auto (default)")
      ->check(CLI::IsMember({"on", "off", "auto"}));
  app.add_option("--tags", options.tags, "Tags of the model, for those who list it")
      ->delimiter(',');
  app.add_flag("--slots,!--no-slots", options.has_slots, "Serve /slots (default: yes)")
      ->envname("LLAMA_ARG_ENDPOINT_SLOTS");
  app.add_flag("--metrics,!--no-metrics", options.has_metrics, "Serve /metrics (default: yes)")
      ->envname("LLAMA_ARG_ENDPOINT_METRICS");
  app.add_flag("--ui,--webui,!--no-ui,!--no-webui", options.has_ui, "Serve / (default: yes)")
      ->envname("LLAMA_ARG_WEBUI");
  app.add_flag("--kv-unified,!--no-kv-unified", flags.is_kv_unified,
               "With --parallel: each sequence may have all of --ctx-size, not its share")
      ->envname("LLAMA_ARG_KV_UNIFIED");
  app.add_flag("--context-shift", flags.has_context_shift, "Refused: it would change answers");
  AddIgnoredFlags(app, flags);
}

Status CheckLlamaServerFlags(const LlamaServerFlags& flags) {
  if (flags.has_context_shift) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "--context-shift: not offered: what a model says after its context was cut is no "
                  "answer to the prompt; use a larger --ctx-size");
  }
  return {};
}

Result<std::optional<NamedTemplate>> ReadNamedTemplate(const LlamaServerFlags& flags) {
  if (!flags.template_file.empty()) {
    KVERN_ASSIGN_OR_RETURN(std::string source, ReadTextFile(flags.template_file));
    return std::optional(NamedTemplate{.source = std::move(source)});
  }
  if (flags.template_name.empty()) return std::optional<NamedTemplate>();
  if (const auto builtin = text::FindBuiltinTemplate(flags.template_name)) {
    return std::optional(NamedTemplate{.source = std::string(*builtin), .is_builtin = true});
  }
  if (IsName(flags.template_name)) {
    std::string names;
    for (const auto& row : text::BuiltinTemplates()) names.append(" ").append(row.name);
    return Errorf(ErrorCode::kInvalidArgument,
                  "--chat-template: '{}' is neither a template nor the name of one:{}",
                  flags.template_name, names);
  }
  return std::optional(NamedTemplate{.source = flags.template_name});
}

}  // namespace kvern::cli
