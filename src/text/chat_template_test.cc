#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace kvern::text {
namespace {

using nlohmann::ordered_json;

const ordered_json kConversation = ordered_json::parse(R"([
  {"role": "system", "content": "Be kind."},
  {"role": "user", "content": "Hi"},
  {"role": "assistant", "content": "Hello"},
  {"role": "user", "content": "Bye"}])");

Result<std::string> Render(const std::string& source, const ChatInput& input) {
  KVERN_ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::Create(source, "<s>", "</s>"));
  return chat.Render(input);
}

// As llama.cpp renders the same names, with the model's own tokens where it writes them out.
TEST(ChatTemplate, BuiltinsRenderTheirFamilysFormat) {
  const std::map<std::string_view, std::string> expected = {
      {"chatml",
       "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
       "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
       "<|im_start|>assistant\n"},
      {"deepseek",
       "<s>Be kind.### Instruction:\nHi\n### Response:\nHello\n<|EOT|>\n"
       "### Instruction:\nBye\n### Response:\n"},
      {"deepseek2", "<s>Be kind.\n\nUser: Hi\n\nAssistant: Hello</s>User: Bye\n\nAssistant:"},
      {"deepseek3",
       "<s>Be kind.\n\n<｜User｜>Hi<｜Assistant｜>Hello<｜end▁of▁sentence｜><｜User｜>Bye"
       "<｜Assistant｜>"},
      {"gemma",
       "<s><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello"
       "<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"},
      {"llama2",
       "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST] Hello </s><s>[INST] Bye [/INST]"},
      {"llama3",
       "<s><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\n"},
      {"command-r",
       "<s><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be kind.<|END_OF_TURN_TOKEN|>"
       "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi<|END_OF_TURN_TOKEN|>"
       "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Hello<|END_OF_TURN_TOKEN|>"
       "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Bye<|END_OF_TURN_TOKEN|>"
       "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"},
      {"mistral-v1", "<s> [INST] Be kind.\n\nHi [/INST] Hello</s> [INST] Bye [/INST]"},
      {"mistral-v3", "<s>[INST] Be kind.\n\nHi[/INST] Hello</s>[INST] Bye[/INST]"},
      {"mistral-v7",
       "<s>[SYSTEM_PROMPT] Be kind.[/SYSTEM_PROMPT][INST] Hi[/INST] Hello</s>[INST] Bye[/INST]"},
      {"phi3",
       "<|system|>\nBe kind.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello<|end|>\n"
       "<|user|>\nBye<|end|>\n<|assistant|>\n"},
      {"zephyr",
       "<|system|>\nBe kind.</s>\n<|user|>\nHi</s>\n<|assistant|>\nHello</s>\n<|user|>\nBye</s>\n"
       "<|assistant|>\n"},
  };
  EXPECT_EQ(BuiltinTemplates().size(), expected.size());
  for (const BuiltinTemplate& row : BuiltinTemplates()) {
    const Result<std::string> text =
        Render(std::string(row.source), ChatInput{.messages = kConversation, .now = {}});
    ASSERT_TRUE(text.ok()) << row.name << ": " << text.error().message;
    ASSERT_EQ(expected.count(row.name), 1u) << row.name;
    EXPECT_EQ(*text, expected.at(row.name)) << row.name;
    EXPECT_EQ(FindBuiltinTemplate(row.name), row.source);
  }
  EXPECT_FALSE(FindBuiltinTemplate("nope").has_value());
}

TEST(ChatTemplate, PassesEverythingToTheTemplate) {
  const ordered_json tools = ordered_json::parse(R"([{"type": "function"}])");
  const ordered_json variables = {{"enable_thinking", false}};
  const std::string source =
      "{{ bos_token }}{{ eos_token }}{{ tools|tojson }}{{ enable_thinking }}"
      "{{ add_generation_prompt }}{{ messages|length }}{{ strftime_now('%Y') }}{{ documents }}";
  EXPECT_EQ(*Render(source, ChatInput{.messages = kConversation,
                                      .tools = &tools,
                                      .variables = &variables,
                                      .add_generation_prompt = false,
                                      .now = {2031, 2, 3, 4, 5, 6}}),
            "<s></s>[{\"type\": \"function\"}]FalseFalse42031None");
  EXPECT_EQ(*Render("{{ tools }}", ChatInput{.messages = kConversation, .now = {}}), "None");
}

TEST(ChatTemplate, RefusalsCarryTheTemplatesWords) {
  const auto text = Render("\n{{ raise_exception('No system role, please') }}",
                           ChatInput{.messages = kConversation, .now = {}});
  EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(text.error().message, "chat template, line 2: No system role, please");
  EXPECT_EQ(ChatTemplate::Create("{% if %}", "", "").error().message,
            "chat template, line 1: expected an expression, got '%}'");
}

TEST(ChatTemplate, DeepJsonIsRefused) {
  ordered_json deep = ordered_json::array();
  for (int i = 0; i < 200; ++i) deep = ordered_json::array({deep});
  const auto text = Render("", ChatInput{.messages = deep, .now = {}});
  EXPECT_EQ(text.error().message, "messages: JSON is nested too deeply");
}

}  // namespace
}  // namespace kvern::text
