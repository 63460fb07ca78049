// llama.cpp's slots: as many as sequences may run at once, each busy or not.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/api/routes.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

void HandleSlots(const Call& call) {
  if (!call.server.options.has_slots) {
    return call.Fail({.status = 501,
                      .type = "not_supported_error",
                      .message = "/slots is switched off: start without --no-slots"});
  }
  const Serving& serving = call.serving();
  const size_t num_slots = serving.options.scheduler.max_running;
  const size_t num_busy = std::min(serving.engine->stats().running, num_slots);
  Json slots = Json::array();
  for (size_t i = 0; i < num_slots; ++i) {
    slots.push_back({{"id", i},
                     {"n_ctx", serving.engine->context()},
                     {"speculative", false},
                     {"is_processing", i < num_busy}});
  }
  call.Reply(slots);
}

}  // namespace kvern::server
