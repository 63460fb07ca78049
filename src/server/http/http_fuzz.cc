// Bytes of a connection: the first says in pieces of how many bytes the others come.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "server/http/request_reader.h"

namespace {

// All requests of a connection, as text, until one fails or the bytes end.
std::string ReadAll(std::string_view bytes, size_t piece) {
  using namespace kvern::server;
  const ReadLimits limits{.max_header_bytes = 512, .max_body_bytes = 1024};
  std::string said, input;
  auto reader = std::make_unique<RequestReader>(limits);
  for (size_t i = 0; i < bytes.size(); i += piece) {
    input += bytes.substr(i, piece);
    while (true) {
      const size_t taken = reader->Feed(input);
      CHECK(taken <= input.size());
      input.erase(0, taken);
      if (reader->failure()) return said + "!";
      CHECK(reader->body_bytes() <= limits.max_body_bytes);
      if (!reader->is_done()) break;
      const HttpRequest request = reader->Take();
      said += request.method + " " + request.path + " " + request.body + "\n";
      reader = std::make_unique<RequestReader>(limits);
    }
    CHECK(input.size() < limits.max_header_bytes + piece);
  }
  return said;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece = size_t{1} + data[0] % 64;
  // How bytes come in pieces changes nothing but when a limit is seen.
  const std::string in_pieces = ReadAll(bytes, piece), one_by_one = ReadAll(bytes, 1);
  if (!in_pieces.ends_with('!') && !one_by_one.ends_with('!')) CHECK(in_pieces == one_by_one);
  return 0;
}
