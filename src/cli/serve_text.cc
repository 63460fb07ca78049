#include "cli/serve_text.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace kvern::cli {
namespace {

constexpr int kSentencesPerParagraph = 6;

constexpr std::string_view kThings[] = {
    "mill",    "river",   "baker",     "village",  "harvest", "stone",    "garden",   "winter",
    "market",  "bridge",  "teacher",   "library",  "engine",  "letter",   "window",   "forest",
    "captain", "island",  "lantern",   "barley",   "orchard", "wheel",    "kitchen",  "traveller",
    "morning", "valley",  "carpenter", "machine",  "story",   "question", "answer",   "meadow",
    "station", "harbour", "clock",     "painter",  "doctor",  "family",   "mountain", "road",
    "field",   "storm",   "neighbour", "workshop", "school",  "journey",  "song",     "table"};
constexpr std::string_view kQualities[] = {
    "old",    "quiet",  "heavy",  "bright",   "small",   "careful", "distant", "warm",
    "empty",  "green",  "honest", "narrow",   "patient", "rough",   "sudden",  "golden",
    "common", "gentle", "hidden", "ancient",  "busy",    "clever",  "dusty",   "early",
    "famous", "hungry", "modern", "northern", "perfect", "silver",  "strange", "wooden"};
constexpr std::string_view kActions[] = {
    "turns",   "watches",  "carries", "remembers", "follows", "builds",  "measures", "repairs",
    "crosses", "finds",    "keeps",   "leaves",    "paints",  "answers", "visits",   "explains",
    "grinds",  "collects", "opens",   "describes", "passes",  "reaches", "shares",   "surprises"};
constexpr std::string_view kPlaces[] = {"near",   "behind", "above",  "beside", "below",
                                        "beyond", "inside", "across", "before", "after"};

class Writer {
 public:
  explicit Writer(uint64_t seed) : random_(seed) {}

  // "Silver orchard: ": what tells one text from the next at once.
  std::string Title() {
    std::string quality(Pick(kQualities));
    quality.front() = static_cast<char>(quality.front() - 'a' + 'A');
    return quality + " " + std::string(Pick(kThings)) + ", " + std::string(Pick(kActions)) + " " +
           std::string(Pick(kThings)) + ". ";
  }

  std::string Sentence() {
    std::string text = "The " + Noun() + " " + std::string(Pick(kActions)) + " the " + Noun();
    if (random_.Below(2) == 0) text += " " + std::string(Pick(kPlaces)) + " the " + Noun();
    if (random_.Below(4) == 0)
      text += ", and a " + Noun() + " " + std::string(Pick(kActions)) + " it";
    if (random_.Below(8) == 0) text += Year();
    return text + ". ";
  }

 private:
  template <size_t n>
  std::string_view Pick(const std::string_view (&words)[n]) {
    return words[random_.Below(n)];
  }

  std::string Noun() {
    std::string text;
    if (random_.Below(3) != 0) text = std::string(Pick(kQualities)) + " ";
    return text + std::string(Pick(kThings));
  }

  std::string Year() { return " in the year " + std::to_string(1500 + random_.Below(520)); }

  SplitMix64 random_;
};

}  // namespace

std::string MakeParagraph(uint64_t seed, uint64_t text, uint64_t index) {
  SplitMix64 mix(seed);
  const uint64_t text_seed = SplitMix64(mix.Next() ^ text).Next();
  Writer writer(text_seed + index);
  std::string paragraph = index == 0 ? writer.Title() : "";
  for (int i = 0; i < kSentencesPerParagraph; ++i) paragraph += writer.Sentence();
  return paragraph;
}

Result<std::vector<TokenId>> TextMaker::Make(uint64_t text, size_t num_tokens, bool begins_prompt) {
  Made& made = made_[begins_prompt][text];
  // Paragraphs are encoded one by one, so that what comes later does not change what came before.
  while (made.tokens.size() < num_tokens) {
    const uint64_t index = made.num_paragraphs;
    const std::string paragraph = MakeParagraph(seed_, text, index);
    KVERN_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                           encode_(paragraph, begins_prompt && index == 0));
    CHECK(!tokens.empty());
    ++made.num_paragraphs;
    made.tokens.insert(made.tokens.end(), tokens.begin(), tokens.end());
  }
  return std::vector<TokenId>(made.tokens.begin(),
                              made.tokens.begin() + static_cast<ptrdiff_t>(num_tokens));
}

}  // namespace kvern::cli
