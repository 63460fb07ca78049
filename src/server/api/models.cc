#include <nlohmann/json.hpp>

#include "server/api/routes.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

void HandleModels(const Call& call) {
  const Serving& serving = call.serving();
  const Json model = {{"id", serving.name},
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
  call.Reply({{"default_generation_settings", {{"n_ctx", serving.engine->context()}}},
              {"total_slots", serving.options.scheduler.max_running},
              {"model_alias", serving.name},
              {"chat_template", serving.template_source},
              {"fingerprint", serving.engine->fingerprint()}});
}

}  // namespace kvern::server
