// A server at a URL as the target of a workload: any that speaks OpenAI's completions and takes
// prompts as token ids.
//
// Texts become tokens by llama.cpp's /tokenize, or by the tokenizer of a model file. The ids of
// replies are those that the stream says where it is asked (`return_token_ids`); else a reply that
// a later prompt quotes is tokenized again. Times are taken as bytes come, on the client's thread.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "cli/serve_target.h"
#include "text/tokenizer.h"

namespace kvern::cli {

struct UrlTargetOptions {
  std::string url;
  std::string api_key = {};                         // empty: none is sent
  std::shared_ptr<text::Tokenizer> tokenizer = {};  // null: the server's
};

// Asks the server for its model. Errors: one line that names the URL: nobody listens there, the key
// is not accepted, it is no such server.
Result<std::unique_ptr<ServeTarget>> OpenUrlTarget(const UrlTargetOptions& options);

}  // namespace kvern::cli
