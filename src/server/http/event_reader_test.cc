#include "server/http/event_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvern::server {
namespace {

std::vector<std::string> EventsOf(std::string_view text, size_t piece,
                                  EventReader reader = EventReader()) {
  std::vector<std::string> events;
  for (size_t i = 0; i < text.size(); i += piece) {
    reader.Feed(text.substr(i, piece), [&](std::string_view data) { events.emplace_back(data); });
  }
  return events;
}

TEST(EventReader, ReadsEventsInPiecesOfAnySize) {
  const std::string text =
      ": ping\n\ndata: one\n\nevent: x\nid: 1\ndata:two\ndata:  three\n\r\ndata: four\r\n\r\n"
      "data: five\r\rdata\n\ndatum: no\n\ndata: cut";
  const std::vector<std::string> expected = {"one", "two\n three", "four", "five", ""};
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(EventsOf(text, piece), expected) << piece;
  }
}

TEST(EventReader, AnEventHasABound) {
  EventReader reader(16);
  const auto ignore = [](std::string_view) {};
  EXPECT_TRUE(reader.Feed("data: 0123456789\n\n", ignore));
  EXPECT_TRUE(reader.Feed("data: 01234\ndata: ", ignore));
  EXPECT_FALSE(reader.Feed("0123456789", ignore));
  EXPECT_FALSE(reader.Feed("\n\n", ignore));
}

}  // namespace
}  // namespace kvern::server
