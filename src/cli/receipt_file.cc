#include "cli/receipt_file.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace kvern::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 4;  // of objects: "response", "body", "kvern_receipt"

bool IsReceipt(const Json& value) {
  return value.is_object() && value.contains("answer") && value.contains("request") &&
         value.contains("version");
}

const Json* Find(const Json& value, int depth) {
  if (!value.is_object() || depth > kMaxDepth) return nullptr;
  if (IsReceipt(value)) return &value;
  for (const char* const key : {"receipt", "kvern_receipt"}) {
    const auto member = value.find(key);
    if (member == value.end()) continue;
    if (member->is_object() || (member->is_string() && *member != "")) return &*member;
  }
  for (const Json& member : value) {
    if (const Json* const found = Find(member, depth + 1)) return found;
  }
  return nullptr;
}

// None if there is no receipt in it.
Result<std::optional<engine::Receipt>> ReadFrom(const std::string& place, const Json& document) {
  const Json* const found = Find(document, 1);
  if (found == nullptr) return std::optional<engine::Receipt>();
  const std::string text = found->is_string() ? found->get<std::string>() : found->dump();
  auto receipt = engine::ParseReceipt(text);
  if (receipt.ok()) return std::optional(*std::move(receipt));
  return Errorf(ErrorCode::kCorrupt, "{}: {}", place, receipt.error().message);
}

std::optional<Json> Parse(std::string_view text) {
  // Deeper than replies and receipts go; what is below is left out.
  const auto limit = [](int depth, Json::parse_event_t, Json&) { return depth <= 32; };
  Json document = Json::parse(text, limit, /*allow_exceptions=*/false);
  if (document.is_discarded()) return std::nullopt;
  return document;
}

Result<std::vector<FoundReceipt>> FindInLines(const std::string& name, std::string_view text) {
  std::vector<FoundReceipt> receipts;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view row = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = fmt::format("{}: line {}", name, line);
    const std::optional<Json> document = Parse(row);
    if (!document) return Errorf(ErrorCode::kCorrupt, "{}: is not JSON", place);
    KVERN_ASSIGN_OR_RETURN(auto receipt, ReadFrom(place, *document));
    if (receipt) receipts.push_back({line, *std::move(receipt)});
  }
  return receipts;
}

}  // namespace

Result<std::vector<FoundReceipt>> FindReceipts(const std::string& name, std::string_view text) {
  std::vector<FoundReceipt> receipts;
  if (const std::optional<Json> document = Parse(text)) {
    KVERN_ASSIGN_OR_RETURN(auto receipt, ReadFrom(name, *document));
    if (receipt) receipts.push_back({0, *std::move(receipt)});
  } else {
    KVERN_ASSIGN_OR_RETURN(receipts, FindInLines(name, text));
  }
  if (!receipts.empty()) return receipts;
  return Errorf(ErrorCode::kCorrupt,
                "{}: holds no receipt: give a receipt, or a reply that has one as \"receipt\" or "
                "\"kvern_receipt\"",
                name);
}

}  // namespace kvern::cli
