// Renders templates for the differential tests against Python's jinja2 (jinja_peer.py).
//
// stdin: one JSON case per line, {"template": ..., "context": {...}}. stdout: one JSON result per
// line, {"text": ...} or {"error": ..., "kind": "raised" | "unsupported" | "limit" | "template"}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "text/jinja/json.h"
#include "text/jinja/template.h"

namespace {

using nlohmann::ordered_json;
using namespace kvern;

// 26 July 2024, 14:03:09: what jinja_peer.py injects.
constexpr text::jinja::LocalTime kNow{2024, 7, 26, 14, 3, 9};

Result<std::string> Render(const ordered_json& request) {
  KVERN_ASSIGN_OR_RETURN(const auto parsed,
                         text::jinja::Template::Parse(request["template"].get<std::string>()));
  KVERN_ASSIGN_OR_RETURN(const text::jinja::Value context,
                         text::jinja::FromJson(request["context"]));
  return parsed.Render(context.dict(), kNow);
}

const char* Kind(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "raised";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kOutOfMemory:
      return "limit";
    default:
      return "template";
  }
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const Result<std::string> text = Render(ordered_json::parse(line));
    ordered_json reply;
    if (text.ok()) {
      reply["text"] = *text;
    } else {
      reply["error"] = text.error().message;
      reply["kind"] = Kind(text.error().code);
    }
    std::cout << reply.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << "\n";
  }
}
