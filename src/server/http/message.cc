#include "server/http/message.h"

#include "server/http/ascii.h"

namespace kvern::server {

std::optional<std::string_view> HttpRequest::Header(std::string_view name) const {
  for (const HttpHeader& header : headers) {
    if (EqualsIgnoringCase(header.name, name)) return header.value;
  }
  return std::nullopt;
}

}  // namespace kvern::server
