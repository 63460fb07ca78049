// The chat templates that --chat-template knows by name. Each renders what the model family was
// trained on. Families without a system turn put its text before the first user message.
#include "text/chat_template.h"

namespace kvern::text {
namespace {

constexpr std::string_view kChatml = R"jinja(
{%- for message in messages -%}
  {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
)jinja";

constexpr std::string_view kLlama2 = R"jinja(
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set ns.system = '<<SYS>>\n' ~ message.content ~ '\n<</SYS>>\n\n' -%}
  {%- elif message.role == 'user' -%}
    {{- bos_token ~ '[INST] ' ~ ns.system ~ message.content ~ ' [/INST]' -}}
    {%- set ns.system = '' -%}
  {%- else -%}
    {{- ' ' ~ message.content ~ ' ' ~ eos_token -}}
  {%- endif -%}
{%- endfor -%}
)jinja";

constexpr std::string_view kLlama3 = R"jinja(
{{- bos_token -}}
{%- for message in messages -%}
  {{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' -}}
  {{- message.content | trim ~ '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}
)jinja";

constexpr std::string_view kMistralV1 = R"jinja(
{{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set ns.system = message.content ~ '\n\n' -%}
  {%- elif message.role == 'user' -%}
    {{- ' [INST] ' ~ ns.system ~ message.content ~ ' [/INST]' -}}
    {%- set ns.system = '' -%}
  {%- else -%}
    {{- ' ' ~ message.content ~ eos_token -}}
  {%- endif -%}
{%- endfor -%}
)jinja";

constexpr std::string_view kMistralV3 = R"jinja(
{{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set ns.system = message.content ~ '\n\n' -%}
  {%- elif message.role == 'user' -%}
    {{- '[INST] ' ~ ns.system ~ message.content ~ '[/INST]' -}}
    {%- set ns.system = '' -%}
  {%- else -%}
    {{- ' ' ~ message.content | trim ~ eos_token -}}
  {%- endif -%}
{%- endfor -%}
)jinja";

constexpr std::string_view kMistralV7 = R"jinja(
{{- bos_token -}}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {{- '[SYSTEM_PROMPT] ' ~ message.content ~ '[/SYSTEM_PROMPT]' -}}
  {%- elif message.role == 'user' -%}
    {{- '[INST] ' ~ message.content ~ '[/INST]' -}}
  {%- else -%}
    {{- ' ' ~ message.content ~ eos_token -}}
  {%- endif -%}
{%- endfor -%}
)jinja";

constexpr std::string_view kPhi3 = R"jinja(
{%- for message in messages -%}
  {{- '<|' ~ message.role ~ '|>\n' ~ message.content ~ '<|end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\n' -}}{%- endif -%}
)jinja";

constexpr std::string_view kGemma = R"jinja(
{{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set ns.system = message.content | trim ~ '\n\n' -%}
  {%- else -%}
    {{- '<start_of_turn>' ~ ('model' if message.role == 'assistant' else message.role) ~ '\n' -}}
    {%- if message.role != 'assistant' -%}
      {{- ns.system -}}
      {%- set ns.system = '' -%}
    {%- endif -%}
    {{- message.content | trim ~ '<end_of_turn>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\n' -}}{%- endif -%}
)jinja";

constexpr std::string_view kZephyr = R"jinja(
{%- for message in messages -%}
  {{- '<|' ~ message.role ~ '|>\n' ~ message.content ~ eos_token ~ '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\n' -}}{%- endif -%}
)jinja";

constexpr std::string_view kDeepseek = R"jinja(
{{- bos_token -}}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {{- message.content -}}
  {%- elif message.role == 'user' -%}
    {{- '### Instruction:\n' ~ message.content ~ '\n' -}}
  {%- else -%}
    {{- '### Response:\n' ~ message.content ~ '\n<|EOT|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '### Response:\n' -}}{%- endif -%}
)jinja";

constexpr std::string_view kDeepseek2 = R"jinja(
{{- bos_token -}}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {{- message.content ~ '\n\n' -}}
  {%- elif message.role == 'user' -%}
    {{- 'User: ' ~ message.content ~ '\n\n' -}}
  {%- else -%}
    {{- 'Assistant: ' ~ message.content ~ eos_token -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}
)jinja";

constexpr std::string_view kDeepseek3 = R"jinja(
{{- bos_token -}}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {{- message.content ~ '\n\n' -}}
  {%- elif message.role == 'user' -%}
    {{- '<｜User｜>' ~ message.content -}}
  {%- else -%}
    {{- '<｜Assistant｜>' ~ message.content ~ '<｜end▁of▁sentence｜>' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<｜Assistant｜>' -}}{%- endif -%}
)jinja";

constexpr std::string_view kCommandR = R"jinja(
{{- bos_token -}}
{%- for message in messages -%}
  {%- set name = {'system': 'SYSTEM', 'user': 'USER'}.get(message.role, 'CHATBOT') -%}
  {{- '<|START_OF_TURN_TOKEN|><|' ~ name ~ '_TOKEN|>' ~ message.content | trim -}}
  {{- '<|END_OF_TURN_TOKEN|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' -}}{%- endif -%}
)jinja";

constexpr BuiltinTemplate kTemplates[] = {
    {"chatml", kChatml},        {"command-r", kCommandR},   {"deepseek", kDeepseek},
    {"deepseek2", kDeepseek2},  {"deepseek3", kDeepseek3},  {"gemma", kGemma},
    {"llama2", kLlama2},        {"llama3", kLlama3},        {"mistral-v1", kMistralV1},
    {"mistral-v3", kMistralV3}, {"mistral-v7", kMistralV7}, {"phi3", kPhi3},
    {"zephyr", kZephyr},
};

}  // namespace

std::span<const BuiltinTemplate> BuiltinTemplates() { return kTemplates; }

std::optional<std::string_view> FindBuiltinTemplate(std::string_view name) {
  for (const BuiltinTemplate& row : kTemplates) {
    if (row.name == name) return row.source;
  }
  return std::nullopt;
}

}  // namespace kvern::text
