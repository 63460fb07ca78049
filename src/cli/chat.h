// Chat: a conversation in the terminal.
//
// Reads lines, sends the whole conversation to a ChatBackend and streams the reply. Lines that
// start with / are commands (see /help). A line that ends with \ goes on in the next. The user's
// messages are numbered from 1; an edited one is answered anew and those after it go. Ctrl-C stops
// a reply and keeps what was said; a second one in a row leaves. At the end it prints the totals.
//
// One thread. Knows no engine: cmd_run.cc brings the backend.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/line_source.h"
#include "cli/reply_stats.h"
#include "kvern/engine.h"

namespace kvern::cli {

struct ChatTurn {
  std::string role;  // system, user or assistant
  std::string content;
};

using TextSink = std::function<void(std::string_view)>;

struct ChatRequest {
  std::span<const ChatTurn> turns;  // the last is the user's
  uint32_t answer_index = 0;        // n-th answer to the same turns: each is drawn anew
  TextSink on_text;                 // gets the reply piece by piece
  const std::atomic<bool>* stop;    // once true, the reply ends within one token
};

struct ChatReply {
  std::string text;
  FinishReason finish = FinishReason::kStop;  // or kLength, or kCancelled: `stop` became true
  ReplyStats stats;
};

class ChatBackend {
 public:
  virtual ~ChatBackend() = default;

  // Errors: kInvalidArgument where the turns do not fit into the context, with the numbers; any
  // other error is the request's and leaves the backend usable.
  virtual Result<ChatReply> Reply(const ChatRequest& request) = 0;
};

class Chat {
 public:
  struct Options {
    std::string system_prompt;  // empty: none
    TextSink out;
    // Set by Ctrl-C; cleared by the chat before each reply.
    std::atomic<bool>* interrupt = nullptr;
  };

  // Both must outlive the chat.
  Chat(ChatBackend& backend, LineSource& lines, Options options);

  // Until /exit, the end of input, or two Ctrl-C.
  void Run();

  // Without the system prompt.
  std::span<const ChatTurn> turns() const;

 private:
  struct SlashCommand;
  static std::span<const SlashCommand> SlashCommands();

  // The next message or command, or nothing when the user leaves.
  std::optional<std::string> ReadMessage();
  void RunSlashCommand(std::string_view line);
  void Answer(const std::string& message);
  // Whether there was a reply.
  bool AskBackend();
  void Clear();
  void Regenerate();
  // `argument` is "N" or "N new text".
  void Edit(std::string_view argument);
  // The index in turns_ of the user's message that `number` names; says so if there is none.
  std::optional<size_t> FindMessage(std::string_view number);
  void PrintHistory() const;
  void PrintStats() const;
  void PrintHelp() const;
  void Exit() { is_leaving_ = true; }

  ChatBackend& backend_;
  LineSource& lines_;
  const Options options_;
  std::vector<ChatTurn> turns_;  // the system prompt first, if there is one
  uint32_t answer_index_ = 0;
  int num_interrupts_ = 0;  // in a row
  bool is_leaving_ = false;
  std::optional<ReplyStats> last_;
  std::optional<ReplyStats> total_;
};

}  // namespace kvern::cli
