#include "text/special_matcher.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace kvern::text {
namespace {

// White space of the C locale.
bool IsAsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

SpecialMatcher::SpecialMatcher(std::vector<Special> specials) {
  std::ranges::sort(specials, {}, &Special::text);
  std::vector<size_t> prefixes;  // of the current entry, longest last
  for (Special& special : specials) {
    const auto is_prefix = [&](size_t i) {
      return special.text.starts_with(entries_[i].special.text);
    };
    while (!prefixes.empty() && !is_prefix(prefixes.back())) prefixes.pop_back();
    const auto shorter = prefixes.empty() ? std::nullopt : std::optional(prefixes.back());
    prefixes.push_back(entries_.size());
    max_length_ = std::max(max_length_, special.text.size());
    auto& range = range_of_first_byte_[ByteAt(special.text, 0)];
    if (range.second == 0) range.first = entries_.size();
    range.second = entries_.size() + 1;
    entries_.push_back({std::move(special), shorter});
  }
}

std::optional<size_t> SpecialMatcher::LongestAt(std::string_view text) const {
  auto [first, last] = range_of_first_byte_[ByteAt(text, 0)];
  std::optional<size_t> longest;
  for (size_t depth = 1; first < last; ++depth) {
    // [first, last) are the entries that share their first `depth` bytes with the text.
    if (entries_[first].special.text.size() == depth) longest = first++;
    if (depth == text.size()) break;
    const auto begin = entries_.begin() + static_cast<ptrdiff_t>(first);
    const auto end = entries_.begin() + static_cast<ptrdiff_t>(last);
    const auto byte = [&](const Entry& entry) { return ByteAt(entry.special.text, depth); };
    const auto lower = std::ranges::lower_bound(begin, end, ByteAt(text, depth), {}, byte);
    const auto upper = std::ranges::upper_bound(lower, end, ByteAt(text, depth), {}, byte);
    first = static_cast<size_t>(lower - entries_.begin());
    last = static_cast<size_t>(upper - entries_.begin());
  }
  return longest;
}

std::vector<SpecialMatcher::Match> SpecialMatcher::Find(std::string_view text) const {
  struct Candidate {
    TokenId id;
    size_t begin;
    size_t entry;
  };
  std::vector<std::vector<Candidate>> by_length(max_length_ + 1);
  const auto add = [&](size_t begin, std::optional<size_t> entry) {
    if (!entry) return;
    const Special& special = entries_[*entry].special;
    by_length[special.text.size()].push_back({special.id, begin, *entry});
  };
  for (size_t i = 0; i < text.size(); ++i) add(i, LongestAt(text.substr(i)));

  std::vector<Match> matches;
  std::vector<bool> taken(text.size(), false);
  for (size_t length = max_length_; length > 0; --length) {
    std::ranges::sort(by_length[length], {},
                      [](const Candidate& c) { return std::pair(c.id, c.begin); });
    for (const auto& [id, begin, entry] : by_length[length]) {
      if (taken[begin]) continue;
      size_t end = begin;
      while (end < begin + length && !taken[end]) ++end;
      if (end < begin + length) {
        add(begin, entries_[entry].shorter);
        continue;
      }
      if (entries_[entry].special.strips_after) {
        while (end < text.size() && !taken[end] && IsAsciiSpace(text[end])) ++end;
      }
      std::fill(taken.begin() + static_cast<ptrdiff_t>(begin),
                taken.begin() + static_cast<ptrdiff_t>(end), true);
      matches.push_back({id, begin, end});
    }
  }
  std::ranges::sort(matches, {}, &Match::begin);
  return matches;
}

}  // namespace kvern::text
