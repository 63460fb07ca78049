// The bytes of HTTP/1.1 replies.
#pragma once

#include <string>
#include <string_view>

#include "server/http/message.h"

namespace kvern::server {

// How the client knows where a body ends.
enum class BodyEnd { kLength, kChunks, kClose };

struct ReplyFraming {
  BodyEnd end = BodyEnd::kLength;
  bool closes = false;   // no other request is read
  bool has_body = true;  // false: a reply to HEAD
};

// "200 OK" …; unknown ones are "Status".
std::string_view StatusPhrase(int status);

// Status line, headers and, where its length is known, the body.
std::string FormatReply(const HttpReply& reply, const ReplyFraming& framing);

// REQUIRES: !bytes.empty(), for that would be the end.
std::string FormatChunk(std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace kvern::server
