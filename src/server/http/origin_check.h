// Which hosts and origins a server answers to, so that a web page cannot use one that listens on
// its reader's own machine: neither directly (its Origin) nor through a name that it controls
// (Host).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/message.h"

namespace kvern::server {

struct OriginRules {
  // Names that a Host header may have beside "localhost" and IP addresses; "*": any.
  std::vector<std::string> hosts = {};
  // Origins of pages on other machines, such as "https://chat.example.org"; "*": any.
  std::vector<std::string> origins = {};
};

// "localhost", "127.0.0.1" …: a web page on this machine, on any port.
bool IsLocalOrigin(std::string_view origin);

// Whether a request's Host is one of this server.
bool IsServedHost(const HttpRequest& head, const OriginRules& rules);

// What is wrong with a request's Host or Origin, or none.
std::optional<std::string> CheckOrigin(const HttpRequest& head, const OriginRules& rules);

// Headers that let the page of this request read the reply; none if it is not from a page.
std::vector<HttpHeader> CorsHeaders(const HttpRequest& head);

}  // namespace kvern::server
