#include "server/http/reply_format.h"

#include <fmt/format.h>

#include "base/check.h"

namespace kvern::server {

std::string_view StatusPhrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

std::string FormatReply(const HttpReply& reply, const ReplyFraming& framing) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", reply.status, StatusPhrase(reply.status));
  const auto add = [&text](std::string_view name, std::string_view value) {
    // A line break would begin another header.
    if (value.find_first_of("\r\n") != value.npos) return;
    fmt::format_to(std::back_inserter(text), "{}: {}\r\n", name, value);
  };
  if (!reply.content_type.empty()) add("Content-Type", reply.content_type);
  for (const HttpHeader& header : reply.headers) add(header.name, header.value);
  const bool has_length = framing.end == BodyEnd::kLength && reply.status != 204;
  if (has_length) add("Content-Length", fmt::to_string(reply.body.size()));
  if (framing.end == BodyEnd::kChunks) add("Transfer-Encoding", "chunked");
  if (framing.closes) add("Connection", "close");
  text += "\r\n";
  if (has_length && framing.has_body) text += reply.body;
  return text;
}

std::string FormatChunk(std::string_view bytes) {
  CHECK(!bytes.empty());
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

}  // namespace kvern::server
