#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "server/api/llama_parts.h"
#include "server/api/openai_parts.h"
#include "server/api/routes.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

// All names that a client may use.
Json AliasesOf(const Call& call) {
  const auto& aliases = call.server.options.aliases;
  return aliases.empty() ? Json::array({call.serving().name}) : Json(aliases);
}

}  // namespace

void HandleModels(const Call& call) {
  const Serving& serving = call.serving();
  const Json model = {{"id", serving.name},
                      {"aliases", AliasesOf(call)},
                      {"tags", call.server.options.tags},
                      {"object", "model"},
                      {"created", serving.loaded_unix_s},
                      {"owned_by", "kvern"},
                      {"meta",
                       {{"n_vocab", serving.text->vocab_size()},
                        {"n_ctx", serving.engine->context()},
                        {"kv_bytes_per_token", serving.engine->kv_bytes_per_token()},
                        {"fingerprint", serving.engine->fingerprint()}}}};
  call.Reply({{"object", "list"}, {"data", Json::array({model})}});
}

void HandleProps(const Call& call) {
  const Serving& serving = call.serving();
  const ServerOptions& options = call.server.options;
  const auto spelling = [&serving](std::optional<TokenId> id) {
    return id ? serving.text->TokenBytes(*id) : std::string();
  };
  call.Reply(
      {{"default_generation_settings",
        {{"params", DefaultSettings(serving.info.defaults)}, {"n_ctx", serving.engine->context()}}},
       {"total_slots", serving.options.scheduler.max_running},
       {"model_alias", serving.name},
       {"model_path", serving.file_name},
       {"modalities", {{"vision", false}, {"audio", false}, {"video", false}}},
       {"endpoint_slots", options.has_slots},
       {"endpoint_props", false},  // there is none that changes them
       {"endpoint_metrics", options.has_metrics},
       {"ui", options.has_ui},
       {"chat_template", serving.template_source},
       {"bos_token", spelling(serving.tokenizer->bos())},
       {"eos_token", spelling(serving.tokenizer->eos())},
       {"build_info", SystemFingerprint(serving.info)},
       {"fingerprint", serving.engine->fingerprint()}});
}

}  // namespace kvern::server
