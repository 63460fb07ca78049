// Bytes that a server sends: the first says in pieces of how many bytes the others come.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "server/http/event_reader.h"
#include "server/http/reply_reader.h"

namespace {

// The events of a reply, each with a newline, and "!" where it fails.
std::string ReadEvents(std::string_view bytes, size_t piece) {
  using namespace kvern::server;
  const ReadLimits limits{.max_header_bytes = 512, .max_body_bytes = 1024};
  ReplyReader reader(limits);
  EventReader events(256);
  std::string said, input;
  size_t body_bytes = 0;
  bool is_short = true;
  const auto read = [&] {
    const size_t taken = reader.Feed(input);
    CHECK(taken <= input.size());
    input.erase(0, taken);
    const std::string body = reader.TakeBody();
    body_bytes += body.size();
    CHECK(body_bytes <= limits.max_body_bytes);
    is_short = is_short && events.Feed(body, [&said](std::string_view data) {
      CHECK(data.size() <= 256);
      said.append(data).append("\n");
    });
  };
  for (size_t i = 0; i < bytes.size() && !reader.is_done() && !reader.failure(); i += piece) {
    input += bytes.substr(i, piece);
    read();
    CHECK(reader.is_done() || reader.failure() || input.size() < limits.max_header_bytes + piece);
  }
  reader.FeedClose();
  return reader.failure() || !is_short ? said + "!" : said;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece = size_t{1} + data[0] % 64;
  // How bytes come in pieces changes nothing but when a limit is seen.
  const std::string in_pieces = ReadEvents(bytes, piece), one_by_one = ReadEvents(bytes, 1);
  if (!in_pieces.ends_with('!') && !one_by_one.ends_with('!')) CHECK(in_pieces == one_by_one);
  return 0;
}
