#include "cli/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

namespace kvern::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const LineInput kInterrupt{LineInput::Kind::kInterrupted, ""};

// Answers "reply <number of turns>.<completion index>", unless told otherwise.
class FakeBackend final : public ChatBackend {
 public:
  Result<ChatReply> Reply(const ChatRequest& request) override {
    requests.emplace_back(request.turns.begin(), request.turns.end());
    if (error) return *error;
    ChatReply reply;
    reply.text = fmt::format("reply {}.{}", request.turns.size(), request.answer_index);
    reply.stats = {.prompt_tokens = 10,
                   .reply_tokens = 5,
                   .prefill_seconds = 1,
                   .decode_seconds = 1,
                   .kv_bytes = 2048};
    if (interrupt_during_reply) {
      *interrupt_during_reply = true;
      EXPECT_TRUE(*request.stop);
      reply.finish = FinishReason::kCancelled;
    }
    if (is_cut_off) reply.finish = FinishReason::kLength;
    request.on_text(reply.text);
    return reply;
  }

  std::vector<std::vector<ChatTurn>> requests;
  std::optional<Error> error;
  std::atomic<bool>* interrupt_during_reply = nullptr;
  bool is_cut_off = false;
};

class FakeLines final : public LineSource {
 public:
  explicit FakeLines(std::deque<LineInput> inputs) : inputs_(std::move(inputs)) {}

  LineInput Next() override {
    if (inputs_.empty()) return {LineInput::Kind::kEnd, ""};
    LineInput input = std::move(inputs_.front());
    inputs_.pop_front();
    return input;
  }
  size_t num_left() const { return inputs_.size(); }

 private:
  std::deque<LineInput> inputs_;
};

class ChatTest : public testing::Test {
 protected:
  // Runs a chat over `lines` and returns what each request's turns contained, in a row.
  void RunChat(std::deque<LineInput> inputs, std::string system_prompt = "") {
    FakeLines lines(std::move(inputs));
    Chat chat(backend_, lines,
              {.system_prompt = std::move(system_prompt),
               .out = [this](std::string_view text) { output_ += text; },
               .interrupt = &interrupt_});
    chat.Run();
    num_lines_left_ = lines.num_left();
  }

  std::vector<std::string> Contents(size_t request) const {
    std::vector<std::string> contents;
    for (const ChatTurn& turn : backend_.requests.at(request)) {
      contents.push_back(turn.role + ": " + turn.content);
    }
    return contents;
  }

  static LineInput Line(std::string line) { return {LineInput::Kind::kLine, std::move(line)}; }

  FakeBackend backend_;
  std::atomic<bool> interrupt_{false};
  std::string output_;
  size_t num_lines_left_ = 0;
};

TEST_F(ChatTest, SendsTheWholeConversationAndEndsWithTheTotals) {
  RunChat({Line("hello"), Line(""), Line("and?")}, "Be brief.");
  ASSERT_EQ(backend_.requests.size(), 2u);
  EXPECT_THAT(Contents(0), ElementsAre("system: Be brief.", "user: hello"));
  EXPECT_THAT(Contents(1), ElementsAre("system: Be brief.", "user: hello", "assistant: reply 2.0",
                                       "user: and?"));
  EXPECT_EQ(output_,
            "reply 2.0\nreply 4.0\n"
            "prefill 20 tokens, 10.0 t/s; decode 10 tokens, 4.5 t/s; KV cache 2.0 KiB\n");
}

TEST_F(ChatTest, BackslashContinuesALine) {
  RunChat({Line("one\\"), Line("two")});
  EXPECT_THAT(Contents(0), ElementsAre("user: one\ntwo"));
}

TEST_F(ChatTest, ClearKeepsTheSystemPromptOnly) {
  RunChat({Line("hello"), Line("/clear"), Line("again")}, "Be brief.");
  EXPECT_THAT(Contents(1), ElementsAre("system: Be brief.", "user: again"));
}

TEST_F(ChatTest, RegenDrawsAnotherAnswerToTheSameTurns) {
  RunChat({Line("/regen"), Line("hello"), Line("/regen"), Line("/regen"), Line("next")});
  EXPECT_THAT(output_, HasSubstr("nothing to answer again"));
  EXPECT_THAT(Contents(1), ElementsAre("user: hello"));
  EXPECT_THAT(Contents(2), ElementsAre("user: hello"));
  EXPECT_THAT(Contents(3), ElementsAre("user: hello", "assistant: reply 1.2", "user: next"));
  EXPECT_THAT(output_, HasSubstr("reply 3.0"));
}

TEST_F(ChatTest, EditReplacesAMessageAndDropsWhatCameAfter) {
  RunChat({Line("one"), Line("two"), Line("/regen"), Line("three"), Line("/edit 2 deux"),
           Line("/history"), Line("/edit 1"), Line("un\\"), Line("et"), Line("/history")},
          "Be brief.");
  ASSERT_EQ(backend_.requests.size(), 6u);
  EXPECT_THAT(Contents(4),
              ElementsAre("system: Be brief.", "user: one", "assistant: reply 2.0", "user: deux"));
  EXPECT_THAT(output_, HasSubstr("reply 4.0\n  1 one\n  2 deux\n"));  // drawn as a first answer
  EXPECT_THAT(output_, HasSubstr("was: one\n"));
  EXPECT_THAT(Contents(5), ElementsAre("system: Be brief.", "user: un\net"));
  EXPECT_THAT(output_, HasSubstr("reply 2.0\n  1 un\net\n"));
}

TEST_F(ChatTest, EditNamesTheMessagesThatThereAre) {
  RunChat({Line("/edit 1 x"), Line("/history"), Line("one"), Line("/edit 2 x"), Line("two"),
           Line("/edit"), Line("/edit 0 x"), Line("/edit 3 x"), Line("/edit 1x")});
  EXPECT_EQ(backend_.requests.size(), 2u);
  EXPECT_THAT(output_, HasSubstr("/edit N: there is no message yet\nno message yet\n"));
  EXPECT_THAT(output_, HasSubstr("/edit N: there is no message '2': N is 1 (/history lists them)"));
  for (const char* number : {"''", "'0'", "'3'", "'1x'"}) {
    EXPECT_THAT(output_, HasSubstr(fmt::format("no message {}: N is 1 to 2", number)));
  }
}

TEST_F(ChatTest, AnEditWithoutTextOrAnswerChangesNothing) {
  RunChat({Line("one"), Line("/edit 1"), Line(""), Line("/edit 1"), Line("/stats"), Line("two")});
  EXPECT_THAT(output_, HasSubstr("was: one\nnot changed\nwas: one\nnot changed\nlast reply: "));
  EXPECT_THAT(Contents(1), ElementsAre("user: one", "assistant: reply 1.0", "user: two"));

  backend_.requests.clear();
  FakeLines lines({Line("one"), Line("/edit 1 long"), Line("/regen")});
  Chat chat(backend_, lines,
            {.system_prompt = "",
             .out =
                 [&](std::string_view text) {
                   if (text == "reply 1.0") backend_.error = Errorf(ErrorCode::kIo, "failed");
                 },
             .interrupt = &interrupt_});
  chat.Run();
  ASSERT_EQ(chat.turns().size(), 2u);
  EXPECT_THAT(Contents(1), ElementsAre("user: long"));
  EXPECT_THAT(Contents(2), ElementsAre("user: one"));
}

TEST_F(ChatTest, AnErrorDropsTheMessageAndTheChatGoesOn) {
  backend_.error = Errorf(ErrorCode::kInvalidArgument, "300 tokens do not fit into -c 256");
  RunChat({Line("long"), Line("/regen"), Line("/stats")});
  EXPECT_THAT(output_, HasSubstr("300 tokens do not fit into -c 256; /clear starts a new"));
  EXPECT_THAT(output_, HasSubstr("no reply yet"));
  backend_.error.reset();
  RunChat({Line("short")});
  EXPECT_THAT(Contents(1), ElementsAre("user: short"));
}

TEST_F(ChatTest, AFailedRegenKeepsTheOldAnswer) {
  FakeLines lines({Line("hello"), Line("/regen")});
  int num_replies = 0;
  Chat chat(backend_, lines,
            {.system_prompt = "",
             .out =
                 [&](std::string_view text) {
                   if (text == "reply 1.0" && ++num_replies == 1) {
                     backend_.error = Errorf(ErrorCode::kNonFinite, "non-finite logits");
                   }
                   output_ += text;
                 },
             .interrupt = &interrupt_});
  chat.Run();
  ASSERT_EQ(chat.turns().size(), 2u);
  EXPECT_EQ(chat.turns()[1].content, "reply 1.0");
  EXPECT_THAT(output_, HasSubstr("non-finite logits\n"));
  EXPECT_THAT(output_, Not(HasSubstr("/clear")));
}

TEST_F(ChatTest, TwoInterruptsInARowLeave) {
  RunChat({kInterrupt, Line("hello"), kInterrupt, kInterrupt, Line("unread")});
  EXPECT_EQ(backend_.requests.size(), 1u);
  EXPECT_EQ(num_lines_left_, 1u);
  EXPECT_THAT(output_, HasSubstr("once more"));
}

TEST_F(ChatTest, AnInterruptStopsTheReplyAndKeepsIt) {
  backend_.interrupt_during_reply = &interrupt_;
  RunChat({Line("hello"), Line("go on"), kInterrupt, Line("unread")});
  EXPECT_THAT(output_, HasSubstr("reply 1.0\n(stopped)\n"));
  EXPECT_THAT(Contents(1), ElementsAre("user: hello", "assistant: reply 1.0", "user: go on"));
  EXPECT_FALSE(interrupt_);
  EXPECT_EQ(num_lines_left_, 1u);
}

TEST_F(ChatTest, SaysThatAReplyWasCutOff) {
  backend_.is_cut_off = true;
  RunChat({Line("hello")});
  EXPECT_THAT(output_, HasSubstr("cut off: -n or -c"));
}

TEST_F(ChatTest, CommandsAreListedAndUnknownOnesNamed) {
  RunChat({Line("/what"), Line("hello"), Line("/stats"), Line("/exit"), Line("unread")});
  EXPECT_THAT(output_, HasSubstr("/what: no such command\n  /clear"));
  EXPECT_THAT(output_, HasSubstr("last reply: prefill 10 tokens"));
  EXPECT_EQ(num_lines_left_, 1u);
}

}  // namespace
}  // namespace kvern::cli
