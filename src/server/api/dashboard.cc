// The dashboard: one page that holds no data. What it shows, it asks the other endpoints for, with
// the reader's key.
#include <fmt/core.h>
#include <sodium.h>

#include <array>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/api/routes.h"
#include "server/dashboard/page.h"

namespace kvern::server {
namespace {

struct DashboardPage {
  std::string html;
  std::string policy;  // what the browser lets it do
};

void FillPlace(std::string& html, std::string_view place, std::string_view content) {
  const size_t at = html.find(place);
  CHECK(at != html.npos);
  html.replace(at, place.size(), content);
}

// A source of a policy: nothing but this very text may run.
std::string HashSource(std::string_view text) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> digest{};
  crypto_hash_sha256(digest.data(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size());
  std::string base64(sodium_base64_ENCODED_LEN(digest.size(), sodium_base64_VARIANT_ORIGINAL),
                     '\0');
  sodium_bin2base64(base64.data(), base64.size(), digest.data(), digest.size(),
                    sodium_base64_VARIANT_ORIGINAL);
  base64.pop_back();  // the terminating zero
  return fmt::format("'sha256-{}'", base64);
}

DashboardPage MakeDashboardPage() {
  DashboardPage page{.html = std::string(kPageHtml), .policy = {}};
  FillPlace(page.html, "{{style}}", kPageStyle);
  FillPlace(page.html, "{{script}}", kPageScript);
  page.policy = fmt::format(
      "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      HashSource(kPageScript), HashSource(kPageStyle));
  return page;
}

}  // namespace

void HandleDashboard(const Call& call) {
  if (!call.server.options.has_ui) {
    return call.Fail({.status = 404,
                      .type = "not_found_error",
                      .message = "the dashboard is switched off: start without --no-ui"});
  }
  static const DashboardPage page = MakeDashboardPage();
  HttpReply reply = call.Head(200);
  reply.content_type = "text/html; charset=utf-8";
  reply.headers.push_back({"Content-Security-Policy", page.policy});
  reply.headers.push_back({"X-Content-Type-Options", "nosniff"});
  reply.headers.push_back({"Referrer-Policy", "no-referrer"});
  reply.headers.push_back({"Cache-Control", "no-cache"});  // another version may have come
  reply.body = page.html;
  call.sink->Send(std::move(reply));
}

}  // namespace kvern::server
