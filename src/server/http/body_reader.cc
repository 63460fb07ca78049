#include "server/http/body_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "server/http/ascii.h"

namespace kvern::server {
namespace {

constexpr std::string_view kBodyLineEnd = "\r\n";

}  // namespace

BodyReader::BodyReader(const ReadLimits& limits, End end, uint64_t length) : limits_(limits) {
  switch (end) {
    case End::kNone:
      break;
    case End::kLength:
      if (length > 0) ExpectData(length, Stage::kData);
      break;
    case End::kChunks:
      stage_ = Stage::kChunkSize;
      break;
    case End::kClose:
      stage_ = Stage::kUntilClose;
      break;
  }
}

void BodyReader::Fail(int status, std::string message) {
  failure_ = ReadFailure{status, std::move(message)};
}

size_t BodyReader::Feed(std::string_view bytes, std::string& body) {
  size_t taken = 0;
  while (!failure_ && !is_done()) {
    const Stage before = stage_;
    const size_t now = FeedStage(bytes.substr(taken), body);
    taken += now;
    if (now == 0 && stage_ == before) break;
  }
  return taken;
}

size_t BodyReader::FeedStage(std::string_view bytes, std::string& body) {
  switch (stage_) {
    case Stage::kData:
    case Stage::kChunkData:
      return FeedData(bytes, body);
    case Stage::kChunkSize:
      return FeedChunkSize(bytes);
    case Stage::kChunkEnd:
      if (bytes.size() < kBodyLineEnd.size()) return 0;
      stage_ = Stage::kChunkSize;
      if (!bytes.starts_with(kBodyLineEnd)) Fail(400, "a chunk is longer than it says");
      return kBodyLineEnd.size();
    case Stage::kTrailers:
      return FeedTrailers(bytes);
    case Stage::kUntilClose:
      return FeedUntilClose(bytes, body);
    case Stage::kDone:
      break;
  }
  return 0;
}

void BodyReader::ExpectData(uint64_t num_bytes, Stage stage) {
  stage_ = stage;
  num_expected_ = num_bytes;
  if (num_bytes > limits_.max_body_bytes - body_bytes_) {
    Fail(413, fmt::format("the body is longer than {} bytes", limits_.max_body_bytes));
  }
}

size_t BodyReader::FeedData(std::string_view bytes, std::string& body) {
  const auto now = static_cast<size_t>(std::min<uint64_t>(num_expected_, bytes.size()));
  body += bytes.substr(0, now);
  body_bytes_ += now;
  num_expected_ -= now;
  if (num_expected_ == 0) {
    stage_ = stage_ == Stage::kChunkData ? Stage::kChunkEnd : Stage::kDone;
  }
  return now;
}

size_t BodyReader::FeedUntilClose(std::string_view bytes, std::string& body) {
  const size_t now = std::min(bytes.size(), limits_.max_body_bytes - body_bytes_);
  body += bytes.substr(0, now);
  body_bytes_ += now;
  if (now < bytes.size()) {
    Fail(413, fmt::format("the body is longer than {} bytes", limits_.max_body_bytes));
  }
  return now;
}

std::optional<std::string_view> BodyReader::TakeLine(std::string_view bytes) {
  const size_t end = bytes.substr(0, limits_.max_header_bytes).find(kBodyLineEnd);
  if (end != bytes.npos) return bytes.substr(0, end);
  if (bytes.size() >= limits_.max_header_bytes) {
    Fail(431, "a chunk's header or the trailers are too long");
  }
  return std::nullopt;
}

size_t BodyReader::FeedChunkSize(std::string_view bytes) {
  const auto line = TakeLine(bytes);
  if (!line) return 0;
  uint64_t size = 0;
  const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), size, 16);
  const std::string_view rest = line->substr(static_cast<size_t>(end - line->data()));
  // What a chunk says beside its size is for nobody here.
  if (error != std::errc() || !(rest.empty() || TrimAscii(rest).starts_with(';'))) {
    Fail(400, "a chunk does not begin with its size");
  } else if (size == 0) {
    stage_ = Stage::kTrailers;
  } else {
    ExpectData(size, Stage::kChunkData);
  }
  return line->size() + kBodyLineEnd.size();
}

// Takes them line by line, and forgets them.
size_t BodyReader::FeedTrailers(std::string_view bytes) {
  const auto line = TakeLine(bytes);
  if (!line) return 0;
  const size_t taken = line->size() + kBodyLineEnd.size();
  trailer_bytes_ += taken;
  if (line->empty()) {
    stage_ = Stage::kDone;
  } else if (trailer_bytes_ > limits_.max_header_bytes) {
    Fail(431, "a chunk's header or the trailers are too long");
  }
  return taken;
}

}  // namespace kvern::server
