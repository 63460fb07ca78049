#include "cli/chat.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace kvern::cli {
namespace {

// The first word, and what follows it.
std::pair<std::string_view, std::string_view> SplitWord(std::string_view line) {
  const size_t space = std::min(line.find(' '), line.size());
  return {line.substr(0, space), line.substr(std::min(space + 1, line.size()))};
}

}  // namespace

struct Chat::SlashCommand {
  std::string_view name;
  std::string_view argument;  // as help spells it; empty: it takes none
  std::string_view help;
  void (*run)(Chat& chat, std::string_view argument);
};

std::span<const Chat::SlashCommand> Chat::SlashCommands() {
  static constexpr SlashCommand kCommands[] = {
      {.name = "/clear",
       .argument = "",
       .help = "forget the conversation",
       .run = [](Chat& chat, std::string_view) { chat.Clear(); }},
      {.name = "/regen",
       .argument = "",
       .help = "answer the last message once more",
       .run = [](Chat& chat, std::string_view) { chat.Regenerate(); }},
      {.name = "/edit",
       .argument = "N",
       .help = "replace your message N and go on from there",
       .run = [](Chat& chat, std::string_view argument) { chat.Edit(argument); }},
      {.name = "/history",
       .argument = "",
       .help = "your messages, numbered",
       .run = [](Chat& chat, std::string_view) { chat.PrintHistory(); }},
      {.name = "/stats",
       .argument = "",
       .help = "speed and KV cache so far",
       .run = [](Chat& chat, std::string_view) { chat.PrintStats(); }},
      {.name = "/help",
       .argument = "",
       .help = "this list",
       .run = [](Chat& chat, std::string_view) { chat.PrintHelp(); }},
      {.name = "/exit",
       .argument = "",
       .help = "leave",
       .run = [](Chat& chat, std::string_view) { chat.Exit(); }},
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

void Chat::RunSlashCommand(std::string_view line) {
  const auto [name, argument] = SplitWord(line);
  for (const SlashCommand& command : SlashCommands()) {
    const bool fits = argument.empty() || !command.argument.empty();
    if (name == command.name && fits) return command.run(*this, argument);
  }
  options_.out(fmt::format("{}: no such command\n", line));
  PrintHelp();
}

void Chat::Answer(const std::string& message) {
  turns_.push_back({"user", message});
  answer_index_ = 0;
  if (!AskBackend()) turns_.pop_back();
}

bool Chat::AskBackend() {
  *options_.interrupt = false;
  auto reply = backend_.Reply({.turns = turns_,
                               .answer_index = answer_index_,
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
  ++answer_index_;
  if (!AskBackend()) turns_.push_back(std::move(previous));
}

void Chat::Edit(std::string_view argument) {
  const auto [number, text] = SplitWord(argument);
  const auto index = FindMessage(number);
  if (!index) return;
  std::string message(text);
  if (message.empty()) {
    options_.out(fmt::format("was: {}\n", turns_[*index].content));
    auto line = ReadMessage();
    if (!line) return Exit();
    if (line->empty() || line->front() == '/') {
      options_.out("not changed\n");
      return line->empty() ? void() : RunSlashCommand(*line);
    }
    message = std::move(*line);
  }
  std::vector<ChatTurn> previous = turns_;
  const uint32_t answer_index = std::exchange(answer_index_, 0);
  turns_.resize(*index);
  turns_.push_back({"user", std::move(message)});
  if (AskBackend()) return;
  turns_ = std::move(previous);
  answer_index_ = answer_index;
}

std::optional<size_t> Chat::FindMessage(std::string_view number) {
  size_t wanted = 0;
  const auto parsed = std::from_chars(number.data(), number.data() + number.size(), wanted);
  const bool is_number = parsed.ec == std::errc() && parsed.ptr == number.data() + number.size();
  size_t count = 0;
  for (size_t i = 0; i < turns_.size(); ++i) {
    if (turns_[i].role == "user" && ++count == wanted && is_number) return i;
  }
  if (count == 0) {
    options_.out("/edit N: there is no message yet\n");
  } else {
    options_.out(fmt::format("/edit N: there is no message '{}': N is {} (/history lists them)\n",
                             number, count == 1 ? "1" : fmt::format("1 to {}", count)));
  }
  return std::nullopt;
}

void Chat::PrintHistory() const {
  size_t count = 0;
  for (const ChatTurn& turn : turns_) {
    if (turn.role == "user") options_.out(fmt::format("{:3} {}\n", ++count, turn.content));
  }
  if (count == 0) options_.out("no message yet\n");
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
    const std::string usage = fmt::format("{} {}", command.name, command.argument);
    options_.out(fmt::format("  {:9} {}\n", usage, command.help));
  }
}

}  // namespace kvern::cli
