// Lines of batch files in OpenAI's form: one request a line in, one reply a line out.
//
// Functions of their arguments, safe from any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "kvern/engine.h"
#include "server/api/openai.h"

namespace kvern::cli {

// Why a line is no request.
struct LineError {
  std::string code;
  std::string message;  // names the line
};

struct BatchItem {
  size_t line = 0;                            // of the input, from 1
  std::optional<std::string> custom_id = {};  // none: the line is malformed
  // What to ask, or what to answer at once: a line that is none, or a body that is refused.
  std::variant<server::ApiRequest, server::ApiError, LineError> content = {};
};

// `text` is a line of the input.
BatchItem ParseBatchLine(size_t line, std::string_view text, const server::ModelInfo& model);

// The custom_id of an input line, if it has one.
std::optional<std::string> FindCustomId(std::string_view text);

// Which request a line of an output answers.
struct AnsweredLine {
  std::optional<std::string> custom_id = {};
  std::optional<size_t> input_line = {};  // of a malformed one, which has no id
};
// None: it is no line that these functions write.
std::optional<AnsweredLine> FindAnswered(std::string_view text);

// How they all begin.
inline constexpr std::string_view kOutputLineBegin = "{\"id\":\"batch_req_";

// Output lines, without newline. `ids.id` is unique. REQUIRES for the first: the content is a
// request that the answer is of.
std::string AnswerLine(const BatchItem& item, const Answer& answer, const server::ModelInfo& model,
                       const server::ReplyIds& ids);
std::string RefusalLine(const BatchItem& item, const server::ApiError& error,
                        const server::ReplyIds& ids);
std::string MalformedLine(const BatchItem& item, const LineError& error,
                          const server::ReplyIds& ids);

}  // namespace kvern::cli
