// The conversation of a chat request: its messages and what else its template is given.
//
// Functions of their arguments; any thread.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/result.h"
#include "server/api/cache_marks.h"
#include "server/api/field_reader.h"
#include "server/api/model_text.h"
#include "server/api/openai.h"
#include "text/chat_template.h"

namespace kvern::server {

// Reads messages, tools, chat_template_kwargs, add_generation_prompt and continue_final_message,
// and calls `use` with them; a second time if it fails, where tool calls can be given otherwise.
// A last message of the assistant is gone on with, as llama-server does, unless
// continue_final_message is false. `marks` are those of the messages, before `use` is called.
// Fields that are wrong, and what `use` returns, are errors of `fields`.
void ReadConversation(FieldReader& fields, const RequestDefaults& defaults,
                      std::vector<CacheMark>& marks,
                      const std::function<Status(const Conversation&)>& use);

// The variables of a template: those that were asked for, and what templates of some families
// expect from whoever renders them, as llama.cpp gives it: "date_string", "datetime", "functions"
// and "enable_thinking".
nlohmann::ordered_json TemplateVariables(const Conversation& conversation,
                                         const text::jinja::LocalTime& now);

}  // namespace kvern::server
