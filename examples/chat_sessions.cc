// Two conversations over one system prompt, taking turns; then a message of the first is edited.
// Each line says how much of the prompt was found in the cache: the system prompt is computed once
// for both, a turn finds all turns before it, an edit keeps exactly what comes before it.
//
//   chat_sessions MODEL.gguf
#include <cstdio>
#include <string>
#include <vector>

#include "kvern/engine.h"

using Messages = std::vector<kvern::ChatMessage>;

// Answers the conversation, and adds the answer to it.
void Answer(kvern::Engine& engine, const char* name, Messages& messages) {
  const auto prompt = engine.EncodeChat(messages);
  if (!prompt.ok()) return void(std::printf("%s: %s\n", name, prompt.error().message.c_str()));
  kvern::Request request;
  request.tokens = *prompt;
  request.seed = 1;
  request.max_tokens = 24;
  auto reply = engine.Submit(std::move(request));
  if (!reply.ok()) return void(std::printf("%s: %s\n", name, reply.error().message.c_str()));
  const auto answer = reply->Wait();
  if (!answer.ok()) return void(std::printf("%s: %s\n", name, answer.error().message.c_str()));
  const kvern::Report& report = answer->report;
  std::printf("%s: %zu of %zu prompt tokens from the cache: %s\n", name, report.prompt.hit(),
              report.prompt_tokens, messages.back().content.c_str());
  messages.push_back({"assistant", answer->completions[0].text});
}

void Ask(kvern::Engine& engine, const char* name, Messages& messages, const char* question) {
  messages.push_back({"user", question});
  Answer(engine, name, messages);
}

int main(int argc, char** argv) {
  const auto engine = kvern::Engine::Open({.model = {.path = argc > 1 ? argv[1] : ""}});
  if (!engine.ok()) return std::fprintf(stderr, "%s\n", engine.error().message.c_str()), 1;
  const kvern::ChatMessage system = {
      "system",
      "You are the guide of a small museum of mills. Answer in one short sentence, and "
      "say so when you do not know. The museum is open from nine to five."};
  Messages ann = {system}, bob = {system};
  Ask(**engine, "Ann", ann, "What is a kvern?");
  Ask(**engine, "Bob", bob, "When do you open?");
  Ask(**engine, "Ann", ann, "Who used it?");
  Ask(**engine, "Bob", bob, "And when do you close?");

  ann.resize(3);  // back to the first answer
  Ask(**engine, "Ann, edited", ann, "How old is it?");
}
