// Any bytes as a template: parsing and rendering end within the limits, and never crash.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "text/jinja/json.h"
#include "text/jinja/template.h"

using namespace kvern::text::jinja;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Value* const context = [] {
    const auto json = nlohmann::ordered_json::parse(R"({
      "messages": [{"role": "system", "content": "Be kind."},
                   {"role": "user", "content": [{"type": "text", "text": "H\u00e9"}]},
                   {"role": "assistant", "content": null, "tool_calls": [{"function":
                    {"name": "f", "arguments": {"x": [1, 2.5, true, null]}}}]}],
      "tools": [{"function": {"name": "f", "parameters": {"properties": {}}}}],
      "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})");
    return new Value(*FromJson(json));
  }();
  const std::string source(reinterpret_cast<const char*>(data), size);
  const auto parsed = Template::Parse(source);
  if (!parsed.ok()) return 0;
  Limits limits;
  limits.steps = 20'000;
  limits.output_bytes = 1 << 16;
  limits.allocated_bytes = 1 << 20;
  const auto text = parsed->Render(context->dict(), LocalTime(), limits);
  CHECK(!text.ok() || text->size() <= limits.output_bytes);
  return 0;
}
