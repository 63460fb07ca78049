// BodyReader: the body of one HTTP/1.1 message, out of bytes that anybody may have sent.
//
// Servers read requests with it and clients replies: Beast's own reader of chunks (1.74) asserts
// where the last chunk comes in two pieces. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvern::server {

struct ReadLimits {
  size_t max_header_bytes = size_t{32} << 10;  // also of a chunk's header, and of all trailers
  size_t max_body_bytes = size_t{64} << 20;
};

// Why bytes are no message that is read. The connection must be closed after it is said.
struct ReadFailure {
  int status;  // for who sent it, where it was a request
  std::string message;
};

class BodyReader {
 public:
  // How a body ends: there is none; after its length; after the last chunk; with the connection.
  enum class End { kNone, kLength, kChunks, kClose };

  // `length`: of kLength. It begins as done with kNone, and with kLength where that is 0.
  BodyReader(const ReadLimits& limits, End end, uint64_t length);

  // Takes what it can use of `bytes` and returns how many; appends to `body` what belongs to it.
  // What it leaves must come again with more behind it; never more than max_header_bytes are left.
  // Takes nothing once it is done or failed.
  size_t Feed(std::string_view bytes, std::string& body);

  bool is_done() const { return stage_ == Stage::kDone; }
  bool ends_with_connection() const { return stage_ == Stage::kUntilClose; }
  const std::optional<ReadFailure>& failure() const { return failure_; }

 private:
  enum class Stage { kData, kChunkSize, kChunkData, kChunkEnd, kTrailers, kUntilClose, kDone };

  void Fail(int status, std::string message);
  // Each takes what it can of its stage and returns how many bytes; none: more are needed.
  size_t FeedStage(std::string_view bytes, std::string& body);
  size_t FeedData(std::string_view bytes, std::string& body);
  size_t FeedChunkSize(std::string_view bytes);
  size_t FeedTrailers(std::string_view bytes);
  size_t FeedUntilClose(std::string_view bytes, std::string& body);
  // Up to the end of the line; none: it has not come yet, or is too long.
  std::optional<std::string_view> TakeLine(std::string_view bytes);
  void ExpectData(uint64_t num_bytes, Stage stage);

  const ReadLimits limits_;
  Stage stage_ = Stage::kDone;
  uint64_t num_expected_ = 0;  // bytes of the body or the chunk that have not come
  size_t body_bytes_ = 0;      // so far
  size_t trailer_bytes_ = 0;
  std::optional<ReadFailure> failure_;
};

}  // namespace kvern::server
