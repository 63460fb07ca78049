// Parses any text as a receipt. What is accepted must come back from its own JSON as it was.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "engine/receipt.h"
#include "engine/request_check.h"

namespace kvern::engine {
namespace {

void Try(std::string_view text) {
  const auto receipt = ParseReceipt(text);
  if (!receipt.ok()) {
    CHECK(receipt.error().code == ErrorCode::kInvalidArgument && !receipt.error().message.empty());
    return;
  }
  CHECK(CheckRequest(receipt->request).ok());
  CHECK(receipt->answer.completions.size() == receipt->request.n);
  const std::string json = ToJson(*receipt);
  const auto again = ParseReceipt(json);
  CHECK(again.ok() && ToJson(*again) == json);
  CHECK(FindModelDifferences(receipt->model, again->model).empty());
  CHECK(FindAnswerDifferences(receipt->answer, again->answer).empty());
}

}  // namespace
}  // namespace kvern::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvern::engine::Try({reinterpret_cast<const char*>(data), size});
  return 0;
}
