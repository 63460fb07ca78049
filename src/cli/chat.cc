#include "cli/chat.h"

#include <fmt/core.h>

#include <utility>

namespace kvern::cli {

struct Chat::SlashCommand {
  std::string_view name;
  std::string_view help;
  void (*run)(Chat& chat);
};

std::span<const Chat::SlashCommand> Chat::SlashCommands() {
  static constexpr SlashCommand kCommands[] = {
      {"/clear", "forget the conversation", [](Chat& chat) { chat.Clear(); }},
      {"/regen", "answer the last message once more", [](Chat& chat) { chat.Regenerate(); }},
      {"/stats", "speed and KV cache so far", [](Chat& chat) { chat.PrintStats(); }},
      {"/help", "this list", [](Chat& chat) { chat.PrintHelp(); }},
      {"/exit", "leave", [](Chat& chat) { chat.Exit(); }},
  };
  return kCommands;
}

Chat::Chat(ChatBackend& backend, LineSource& lines, Options options)
    : backend_(backend), lines_(lines), options_(std::move(options)) {
  Clear();
}

std::span<const ChatTurn> Chat::turns() const {
  return std::span(turns_).subspan(options_.system_prompt.empty() ? 0 : 1);
}

void Chat::Run() {
  while (!is_leaving_) {
    const auto message = ReadMessage();
    if (!message) break;
    if (message->empty()) continue;
    if (message->front() == '/') {
      RunSlashCommand(*message);
    } else {
      Answer(*message);
    }
  }
  if (total_) options_.out(fmt::format("{}\n", FormatStats(*total_)));
}

std::optional<std::string> Chat::ReadMessage() {
  std::string message;
  while (true) {
    LineInput input = lines_.Next();
    switch (input.kind) {
      case LineInput::Kind::kEnd:
        return std::nullopt;
      case LineInput::Kind::kInterrupted:
        if (++num_interrupts_ >= 2) {
          options_.out("\n");
          return std::nullopt;
        }
        options_.out("\n(Ctrl-C once more, or /exit, leaves)\n");
        return "";
      case LineInput::Kind::kLine:
        num_interrupts_ = 0;
        message += input.line;
        if (!message.ends_with('\\')) return message;
        message.back() = '\n';
    }
  }
}

void Chat::RunSlashCommand(const std::string& line) {
  for (const SlashCommand& command : SlashCommands()) {
    if (line == command.name) return command.run(*this);
  }
  options_.out(fmt::format("{}: no such command\n", line));
  PrintHelp();
}

void Chat::Answer(const std::string& message) {
  turns_.push_back({"user", message});
  completion_index_ = 0;
  if (!AskBackend()) turns_.pop_back();
}

bool Chat::AskBackend() {
  *options_.interrupt = false;
  auto reply = backend_.Reply({.turns = turns_,
                               .completion_index = completion_index_,
                               .on_text = options_.out,
                               .stop = options_.interrupt});
  *options_.interrupt = false;
  options_.out("\n");
  if (!reply.ok()) {
    const bool does_not_fit = reply.error().code == ErrorCode::kInvalidArgument;
    options_.out(fmt::format("{}{}\n", reply.error().message,
                             does_not_fit ? "; /clear starts a new conversation" : ""));
    return false;
  }
  if (reply->finish == FinishReason::kLength) options_.out("(cut off: -n or -c was reached)\n");
  if (reply->finish == FinishReason::kCancelled) {
    options_.out("(stopped)\n");
    num_interrupts_ = 1;
  }
  turns_.push_back({"assistant", std::move(reply->text)});
  last_ = reply->stats;
  total_ = total_ ? *total_ + reply->stats : reply->stats;
  return true;
}

void Chat::Clear() {
  turns_.clear();
  if (!options_.system_prompt.empty()) turns_.push_back({"system", options_.system_prompt});
}

void Chat::Regenerate() {
  if (turns_.empty() || turns_.back().role != "assistant") {
    options_.out("nothing to answer again yet\n");
    return;
  }
  ChatTurn previous = std::move(turns_.back());
  turns_.pop_back();
  ++completion_index_;
  if (!AskBackend()) turns_.push_back(std::move(previous));
}

void Chat::PrintStats() const {
  if (!total_) {
    options_.out("no reply yet\n");
    return;
  }
  options_.out(fmt::format("last reply: {}\nall: {}\n", FormatStats(*last_), FormatStats(*total_)));
}

void Chat::PrintHelp() const {
  for (const SlashCommand& command : SlashCommands()) {
    options_.out(fmt::format("  {:8} {}\n", command.name, command.help));
  }
}

}  // namespace kvern::cli
