#include "cli/serve_stream.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/api/json_body.h"

namespace kvern::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxErrorBytes = 300;
constexpr std::string_view kStreamEnd = "[DONE]";

// A member of an object; null where it is none or has no such member.
const Json* Member(const Json* object, const char* name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(name);
  return found == object->end() || found->is_null() ? nullptr : &*found;
}

const Json* First(const Json* array) {
  return array == nullptr || !array->is_array() || array->empty() ? nullptr : &array->front();
}

std::optional<std::string> ToString(const Json* value) {
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

std::optional<size_t> ToCount(const Json* value) {
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  return value->get<size_t>();
}

// Of an array of ids alone.
std::optional<std::vector<TokenId>> ToIds(const Json* array) {
  if (array == nullptr || !array->is_array()) return std::nullopt;
  std::vector<TokenId> ids;
  ids.reserve(array->size());
  for (const Json& entry : *array) {
    const auto id = ToCount(&entry);
    if (!id || *id > std::numeric_limits<uint32_t>::max()) return std::nullopt;
    ids.push_back(TokenId{static_cast<uint32_t>(*id)});
  }
  return ids;
}

std::string MessageOf(const Json& error) {
  if (const auto message = ToString(Member(&error, "message"))) return *message;
  if (error.is_string()) return error.get<std::string>();
  return server::ToJsonLine(error);
}

std::string OneLine(std::string_view text) {
  std::string line(text.substr(0, kMaxErrorBytes));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

}  // namespace

std::optional<CompletionStream::Piece> CompletionStream::Take(std::string_view data) {
  if (data == kStreamEnd) {
    has_ended_ = true;
    return std::nullopt;
  }
  const auto event = server::ParseJson(data);
  if (!event.ok()) {
    error_ = "an event is no JSON: " + event.error().message;
    return std::nullopt;
  }
  if (const Json* const error = Member(&*event, "error")) error_ = OneLine(MessageOf(*error));
  if (const Json* const usage = Member(&*event, "usage")) {
    if (const auto count = ToCount(Member(usage, "completion_tokens"))) completion_tokens_ = count;
    const Json* const details = Member(usage, "prompt_tokens_details");
    if (const auto count = ToCount(Member(details, "cached_tokens"))) cached_tokens_ = count;
  }
  const Json* const choice = First(Member(&*event, "choices"));
  if (Member(choice, "finish_reason") != nullptr) has_ended_ = true;
  const std::string text = ToString(Member(choice, "text")).value_or("");
  text_ += text;
  Piece piece;
  if (auto ids = ToIds(Member(choice, "token_ids"))) {
    piece = {.num_tokens = ids->size(), .ids = *std::move(ids)};
  } else if (!text.empty()) {
    piece.num_tokens = 1;
  }
  return piece.num_tokens > 0 ? std::optional(std::move(piece)) : std::nullopt;
}

std::string ErrorMessage(std::string_view body) {
  const auto json = server::ParseJson(body);
  if (!json.ok()) return OneLine(body);
  const Json* const error = Member(&*json, "error");
  return OneLine(MessageOf(error != nullptr ? *error : *json));
}

std::optional<std::vector<TokenId>> ParseTokens(std::string_view body) {
  const auto json = server::ParseJson(body);
  return json.ok() ? ToIds(Member(&*json, "tokens")) : std::nullopt;
}

std::optional<std::string> ParseModelName(std::string_view body) {
  const auto json = server::ParseJson(body);
  return json.ok() ? ToString(Member(First(Member(&*json, "data")), "id")) : std::nullopt;
}

}  // namespace kvern::cli
