// Producers and waiters by themselves: whoever waits is told something, whatever the others do.
#include "kv/in_flight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace kvern::kv {
namespace {

constexpr uint32_t kBlock = 4;
constexpr NamespaceId kNs{0};

using Text = std::vector<TokenId>;

Text MakeText(size_t size, uint32_t first = 0) {
  Text text(size);
  for (size_t i = 0; i < size; ++i) text[i] = TokenId{first + static_cast<uint32_t>(i)};
  return text;
}

InFlight::Announcement Announce(const Text& text, uint64_t sequence, size_t published = 0,
                                int priority = 0) {
  return {.ns = kNs,
          .sequence = SequenceId{sequence},
          .tokens = text,
          .published = published,
          .priority = priority};
}

TEST(InFlightTest, TheProducerThatWillHaveMostIsOffered) {
  InFlight in_flight(kBlock);
  const Text text = MakeText(32), half = MakeText(18), other = MakeText(32, 100);
  in_flight.Announce(Announce(half, 1), {});
  in_flight.Announce(Announce(text, 2), {});
  in_flight.Announce(Announce(other, 3), {});
  const auto offer = in_flight.Find(kNs, text, 0);
  ASSERT_TRUE(offer);
  EXPECT_EQ(offer->production.sequence, SequenceId{2});
  EXPECT_EQ(offer->production.end, 32u);
  const auto except = in_flight.Find(kNs, text, 0, offer->producer);
  ASSERT_TRUE(except);
  EXPECT_EQ(except->production.sequence, SequenceId{1});
  EXPECT_EQ(except->production.end, 16u);  // whole blocks
  EXPECT_FALSE(in_flight.Find(kNs, text, 32));
  EXPECT_FALSE(in_flight.Find(NamespaceId{1}, text, 0));
}

TEST(InFlightTest, WhatIsPublishedIsNotOffered) {
  InFlight in_flight(kBlock);
  const Text text = MakeText(32);
  const ProducerId id = in_flight.Announce(Announce(text, 1), {});
  in_flight.Advance(id, 16);
  const Text shorter = MakeText(16);
  EXPECT_FALSE(in_flight.Find(kNs, shorter, 0));
  EXPECT_EQ(in_flight.Find(kNs, text, 0)->production.end, 32u);
  in_flight.Advance(id, 32);
  EXPECT_FALSE(in_flight.Find(kNs, text, 0));
}

TEST(InFlightTest, EventsComeBestFirstAndOnce) {
  InFlight in_flight(kBlock);
  const Text text = MakeText(32);
  const ProducerId id = in_flight.Announce(Announce(text, 1), {});
  std::vector<WaiterId> waiters;
  for (const int priority : {0, 3, 1, 3}) {
    waiters.push_back(in_flight.Wait(*in_flight.Find(kNs, text, 0), text, priority));
  }
  EXPECT_EQ(in_flight.EffectivePriority(id), 3);
  in_flight.Advance(id, 32);
  EXPECT_EQ(in_flight.EffectivePriority(id), 0);
  const auto events = in_flight.TakeEvents();
  ASSERT_EQ(events.size(), 4u);
  const size_t expected[] = {1, 3, 2, 0};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(events[i].waiter, waiters[expected[i]]);
  EXPECT_TRUE(in_flight.TakeEvents().empty());
  for (const WaiterId waiter : waiters) EXPECT_FALSE(in_flight.EndWait(waiter));
  in_flight.CheckInvariants();
}

// Two that are to take over, with something in common: one goes on, whoever looks first.
TEST(InFlightTest, OfTwoThatAreToTakeOverTheLaterWaitsForTheEarlier) {
  InFlight in_flight(kBlock);
  const Text text = MakeText(32), half = MakeText(18);
  const ProducerId early = in_flight.AnnounceProvisional(kNs, text, 0);
  const ProducerId late = in_flight.AnnounceProvisional(kNs, half, 0);
  EXPECT_FALSE(in_flight.Find(kNs, text, 0, early));
  const auto offer = in_flight.Find(kNs, half, 0, late);
  ASSERT_TRUE(offer);
  EXPECT_EQ(offer->producer, early);
  EXPECT_EQ(offer->production.end, 16u);
  // One that is to produce nothing waits for either, and for an admitted one does everybody.
  EXPECT_EQ(in_flight.Find(kNs, half, 0)->producer, early);
  in_flight.Announce(Announce(half, 1), late);
  EXPECT_EQ(in_flight.Find(kNs, text, 0, early)->producer, late);
}

TEST(InFlightTest, AWaiterThatGaveUpIsToldNothing) {
  InFlight in_flight(kBlock);
  const Text text = MakeText(32);
  const ProducerId id = in_flight.Announce(Announce(text, 1), {});
  const WaiterId waiter = in_flight.Wait(*in_flight.Find(kNs, text, 0), text, 0);
  in_flight.Advance(id, 32);
  in_flight.EndWait(waiter);
  EXPECT_TRUE(in_flight.TakeEvents().empty());
  EXPECT_FALSE(in_flight.FirstJoin(id));
}

TEST(InFlightTest, AJoinKeepsItsPlaceUntilTheWaiterHasLooked) {
  InFlight in_flight(kBlock);
  const Text text = MakeText(32), half = MakeText(16);
  const ProducerId id = in_flight.Announce(Announce(text, 1), {});
  const WaiterId late = in_flight.Wait(*in_flight.Find(kNs, text, 0), text, 0);
  const WaiterId early = in_flight.Wait(*in_flight.Find(kNs, half, 0), half, 0);
  EXPECT_FALSE(in_flight.FirstJoin(id));
  in_flight.Advance(id, 16);
  EXPECT_EQ(in_flight.FirstJoin(id), 16u);
  in_flight.Advance(id, 32);
  EXPECT_EQ(in_flight.FirstJoin(id), 16u);
  in_flight.EndWait(early);
  EXPECT_EQ(in_flight.FirstJoin(id), 32u);
  in_flight.EndWait(late);
  EXPECT_FALSE(in_flight.FirstJoin(id));
}

TEST(InFlightTest, AProducerAgreesAsLongAsItAppendsWhatItAnnounced) {
  InFlight in_flight(kBlock);
  const Text text = MakeText(10), other = MakeText(4, 50);
  const ProducerId id = in_flight.Announce(Announce(text, 1), {});
  EXPECT_TRUE(in_flight.Agrees(id, 3, std::span(text).subspan(3, 4)));
  EXPECT_FALSE(in_flight.Agrees(id, 4, std::span(text).subspan(3, 4)));
  EXPECT_TRUE(in_flight.Agrees(id, 10, other));  // beyond its prompt
  EXPECT_FALSE(in_flight.Agrees(id, 8, other));
}

// ---- Nobody waits for nothing

// Producers come, advance and go; waiters wait, are told, look again and give up. A waiter that was
// told nothing has a producer (checked by CheckInvariants), so in the end all were told.
class Hall {
 public:
  explicit Hall(uint64_t seed) : random_(seed) {
    for (uint32_t i = 0; i < 6; ++i) {
      Text text = MakeText(12 + 4 * (random_() % 4));
      for (size_t t = 4 * (random_() % 4); t < text.size(); ++t) text[t] = TokenId{100 + i};
      texts_.push_back(std::move(text));
    }
  }

  void Step() {
    switch (random_() % 6) {
      case 0:
        return Start({});
      case 1:
      case 2:
        return Wait();
      case 3:
        if (!producers_.empty()) Advance();
        return;
      case 4:
        if (!producers_.empty() && random_() % 2 == 0) End();
        return;
      default:
        Listen();
        return;
    }
  }

  void Finish() {
    do {
      while (!producers_.empty()) End();
    } while (Listen() > 0);
    for (const auto& [waiter, told] : waiters_) EXPECT_TRUE(told);
  }

  const InFlight& in_flight() const { return in_flight_; }

 private:
  struct Producer {
    ProducerId id;
    size_t published, end;
  };

  void Start(std::optional<ProducerId> taken_over, size_t text_index = SIZE_MAX) {
    const Text& text = texts_[text_index == SIZE_MAX ? random_() % texts_.size() : text_index];
    const ProducerId id = in_flight_.Announce(Announce(text, ++last_sequence_), taken_over);
    producers_.push_back({id, 0, text.size() / kBlock * kBlock});
  }

  void Wait() {
    const size_t index = random_() % texts_.size();
    const auto offer = in_flight_.Find(kNs, texts_[index], 0);
    if (!offer) return;
    const WaiterId id = in_flight_.Wait(*offer, texts_[index], static_cast<int>(random_() % 3));
    waiters_[id] = false;
    text_of_[id] = index;
  }

  void Advance() {
    Producer& producer = producers_[random_() % producers_.size()];
    producer.published = std::min(producer.end, producer.published + kBlock);
    in_flight_.Advance(producer.id, producer.published);
  }

  void End() {
    std::swap(producers_[random_() % producers_.size()], producers_.back());
    in_flight_.Withdraw(producers_.back().id);
    producers_.pop_back();
  }

  // Those who were told go on: alone, as the one who takes over, or not at all.
  // Returns how many there were.
  size_t Listen() {
    const std::vector<Event> events = in_flight_.TakeEvents();
    for (const Event& event : events) {
      EXPECT_FALSE(waiters_.at(event.waiter));
      waiters_[event.waiter] = true;
      const auto provisional = in_flight_.EndWait(event.waiter);
      EXPECT_EQ(provisional.has_value(), event.kind == Event::Kind::kTakeOver);
      if (!provisional) continue;
      if (random_() % 2 == 0) {
        in_flight_.Withdraw(*provisional);
      } else {
        Start(provisional, text_of_[event.waiter]);
      }
    }
    return events.size();
  }

  std::mt19937_64 random_;
  InFlight in_flight_{kBlock};
  std::vector<Text> texts_;
  std::vector<Producer> producers_;
  std::map<WaiterId, bool> waiters_;  // whether it was told
  std::map<WaiterId, size_t> text_of_;
  uint64_t last_sequence_ = 0;
};

TEST(InFlightTest, WhoeverWaitsIsToldOnce) {
  const uint64_t first_seed = std::random_device{}();
  for (uint64_t seed = first_seed; seed < first_seed + 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Hall hall(seed);
    for (int step = 0; step < 300; ++step) {
      hall.Step();
      hall.in_flight().CheckInvariants();
    }
    hall.Finish();
    hall.in_flight().CheckInvariants();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace kvern::kv
