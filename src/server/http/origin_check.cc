#include "server/http/origin_check.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>

#include "server/http/ascii.h"

namespace kvern::server {
namespace {

// Without the port; of an IPv6 address without its brackets. None: it has another form.
std::optional<std::string> HostName(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == host.npos) return std::nullopt;
    const std::string_view rest = host.substr(end + 1);
    if (!rest.empty() && (rest.front() != ':' || !IsDigits(rest.substr(1)))) return std::nullopt;
    return std::string(host.substr(1, end - 1));
  }
  const size_t colon = host.find(':');
  if (colon != host.npos && !IsDigits(host.substr(colon + 1))) return std::nullopt;
  return std::string(host.substr(0, colon));
}

// No name that somebody could have registered leads to one of these by surprise.
bool IsAddress(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// A page that this server sent: its Host has been found good.
bool IsOwnOrigin(std::string_view origin, std::string_view host) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme)) return EqualsIgnoringCase(origin.substr(scheme.size()), host);
  }
  return false;
}

bool Has(const std::vector<std::string>& list, std::string_view wanted) {
  return std::ranges::any_of(list, [wanted](const std::string& entry) {
    return entry == "*" || EqualsIgnoringCase(entry, wanted);
  });
}

}  // namespace

bool IsLocalOrigin(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!origin.starts_with(scheme)) continue;
    const auto host = HostName(origin.substr(scheme.size()));
    return host &&
           (EqualsIgnoringCase(*host, "localhost") || *host == "127.0.0.1" || *host == "::1");
  }
  return false;
}

bool IsServedHost(const HttpRequest& head, const OriginRules& rules) {
  const auto name = HostName(head.Header("Host").value_or(""));
  return name &&
         (EqualsIgnoringCase(*name, "localhost") || IsAddress(*name) || Has(rules.hosts, *name));
}

std::optional<std::string> CheckOrigin(const HttpRequest& head, const OriginRules& rules) {
  if (!IsServedHost(head, rules)) {
    return fmt::format("the host '{}' is not served: start with --allowed-hosts to serve it",
                       head.Header("Host").value_or("").substr(0, 100));
  }
  const auto origin = head.Header("Origin");
  if (origin && !IsLocalOrigin(*origin) && !IsOwnOrigin(*origin, *head.Header("Host")) &&
      !Has(rules.origins, *origin)) {
    return fmt::format("pages of '{}' are not served: start with --cors-origins to serve them",
                       origin->substr(0, 100));
  }
  return std::nullopt;
}

std::vector<HttpHeader> CorsHeaders(const HttpRequest& head) {
  const auto origin = head.Header("Origin");
  if (!origin) return {};
  return {{"Access-Control-Allow-Origin", std::string(*origin)}, {"Vary", "Origin"}};
}

}  // namespace kvern::server
