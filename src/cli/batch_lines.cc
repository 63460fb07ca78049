#include "cli/batch_lines.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/api/json_body.h"

namespace kvern::cli {
namespace {

using Json = nlohmann::ordered_json;

std::optional<std::string> FindString(const Json& object, const char* name) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

LineError Malformed(size_t line, std::string code, const std::string& problem) {
  return {.code = std::move(code), .message = fmt::format("line {}: {}", line, problem)};
}

// What is wrong with the frame around a body.
std::optional<LineError> CheckFrame(size_t line, const Json& request) {
  if (!request.is_object()) return Malformed(line, "invalid_line", "must be a JSON object");
  if (!FindString(request, "custom_id")) {
    return Malformed(line, "missing_custom_id", "custom_id must be a string");
  }
  if (FindString(request, "method") != "POST") {
    return Malformed(line, "invalid_method", "method must be \"POST\"");
  }
  const auto url = FindString(request, "url");
  if (!url || !server::FindEndpoint(*url)) {
    return Malformed(line, "invalid_url",
                     "url must be \"/v1/chat/completions\" or \"/v1/completions\"");
  }
  const auto body = request.find("body");
  if (body == request.end() || !body->is_object()) {
    return Malformed(line, "invalid_body", "body must be an object");
  }
  return std::nullopt;
}

Json IdOrNull(const BatchItem& item) { return item.custom_id ? Json(*item.custom_id) : Json(); }

std::string OutputLine(const BatchItem& item, const server::ReplyIds& ids, Json response,
                       Json error) {
  return server::ToJsonLine({{"id", "batch_req_" + ids.id},
                             {"custom_id", IdOrNull(item)},
                             {"response", std::move(response)},
                             {"error", std::move(error)}});
}

Json Response(int status, const server::ReplyIds& ids, Json body) {
  return {{"status_code", status}, {"request_id", "req_" + ids.id}, {"body", std::move(body)}};
}

}  // namespace

BatchItem ParseBatchLine(size_t line, std::string_view text, const server::ModelInfo& model) {
  BatchItem item{.line = line};
  const auto request = server::ParseJson(text);
  if (!request.ok()) {
    item.content = Malformed(line, "invalid_json", request.error().message);
    return item;
  }
  item.custom_id = FindString(*request, "custom_id");
  if (auto problem = CheckFrame(line, *request)) {
    item.content = std::move(*problem);
    return item;
  }
  const auto endpoint = server::FindEndpoint(*FindString(*request, "url"));
  auto parsed = server::ParseRequest(*endpoint, (*request)["body"], model);
  if (auto* error = std::get_if<server::ApiError>(&parsed)) {
    item.content = std::move(*error);
  } else {
    item.content = std::get<server::ApiRequest>(std::move(parsed));
  }
  return item;
}

std::optional<std::string> FindCustomId(std::string_view text) {
  const auto request = server::ParseJson(text);
  return request.ok() ? FindString(*request, "custom_id") : std::nullopt;
}

std::optional<AnsweredLine> FindAnswered(std::string_view text) {
  const auto parsed = server::ParseJson(text);
  if (!parsed.ok() || !parsed->is_object()) return std::nullopt;
  const Json& reply = *parsed;
  if (!reply.contains("response") || !reply.contains("error")) return std::nullopt;
  if (auto id = FindString(reply, "custom_id")) return AnsweredLine{.custom_id = std::move(id)};
  const Json& error = reply["error"];
  if (!error.is_object()) return std::nullopt;
  const auto line = error.find("line");
  if (line == error.end() || !line->is_number_unsigned()) return std::nullopt;
  return AnsweredLine{.input_line = line->get<size_t>()};
}

std::string AnswerLine(const BatchItem& item, const Answer& answer, const server::ModelInfo& model,
                       const server::ReplyIds& ids) {
  const auto& request = std::get<server::ApiRequest>(item.content);
  return OutputLine(item, ids,
                    Response(200, ids, server::ResponseBody(request, answer, model, ids)), nullptr);
}

std::string RefusalLine(const BatchItem& item, const server::ApiError& error,
                        const server::ReplyIds& ids) {
  return OutputLine(item, ids, Response(error.status, ids, server::ErrorBody(error)), nullptr);
}

std::string MalformedLine(const BatchItem& item, const LineError& error,
                          const server::ReplyIds& ids) {
  return OutputLine(item, ids, nullptr,
                    {{"code", error.code}, {"message", error.message}, {"line", item.line}});
}

}  // namespace kvern::cli
