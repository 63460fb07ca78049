// One prompt, printed as it is answered, and the receipt of the answer: keep it in a file, and
// `kvern verify` computes the answer again and says whether it is the same.
//
//   generate MODEL.gguf [PROMPT]
#include <cstdio>
#include <string>

#include "kvern/engine.h"

int Fail(const kvern::Error& error) {
  std::fprintf(stderr, "generate: %s\n", error.message.c_str());
  return 1;
}

int main(int argc, char** argv) {
  if (argc < 2) return Fail({kvern::ErrorCode::kInvalidArgument, "name a model file"});
  const auto engine = kvern::Engine::Open({.model = {.path = argv[1]}});
  if (!engine.ok()) return Fail(engine.error());

  kvern::Request request;
  request.text = argc > 2 ? argv[2] : "The three longest rivers of Europe are";
  request.seed = 7;  // without one, another answer each time
  request.max_tokens = 40;
  auto reply = (*engine)->Submit(request);
  if (!reply.ok()) return Fail(reply.error());

  std::printf("%s", request.text.c_str());
  while (const auto chunk = reply->Next()) {
    std::printf("%s", chunk->text.c_str());
    std::fflush(stdout);
  }
  const kvern::Report report = reply->report();
  if (report.error) return Fail(*report.error);
  std::printf("\n\n%zu prompt tokens, %zu tokens of the answer\n%s\n", report.prompt_tokens,
              report.completion_tokens, report.receipt.c_str());
}
