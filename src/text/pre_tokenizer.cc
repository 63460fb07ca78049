#include "text/pre_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "text/char_class.h"

namespace kvern::text {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// What DeepSeek LLM calls a letter: cased scripts of the Unicode version that it was trained with.
constexpr Range kDeepSeekLetters[] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},
    {0xD8, 0xF6},       {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},
    {0x295, 0x2AF},     {0x370, 0x373},     {0x376, 0x377},     {0x37B, 0x37D},
    {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},     {0x38C, 0x38C},
    {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},     {0x48A, 0x52F},
    {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
    {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},
    {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},
    {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},
    {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
    {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},
    {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},
    {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
    {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
    {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},
    {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},
    {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
    {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},
    {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
    {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};

bool IsSpace(char32_t c) { return ClassOf(c) == CharClass::kSpace; }
bool IsLetter(char32_t c) { return ClassOf(c) == CharClass::kLetter; }
bool IsNumber(char32_t c) { return ClassOf(c) == CharClass::kNumber; }
bool IsPunctuation(char32_t c) { return ClassOf(c) == CharClass::kPunctuation; }
bool IsNewline(char32_t c) { return c == U'\r' || c == U'\n'; }
bool IsAsciiDigit(char32_t c) { return c >= U'0' && c <= U'9'; }
// What is no word, number or space: [^\s\p{L}\p{N}].
bool IsOther(char32_t c) { return !IsSpace(c) && !IsLetter(c) && !IsNumber(c); }

bool IsDefaultSymbol(char32_t c) {
  return IsPunctuation(c) || std::u32string_view(U"$+<=>^~|").find(c) != std::u32string_view::npos;
}
bool IsFalconSymbol(char32_t c) { return IsDefaultSymbol(c) || c == U'`'; }

bool IsDeepSeekLetter(char32_t c) {
  const auto* range = std::ranges::lower_bound(kDeepSeekLetters, c, {}, &Range::last);
  return range != std::end(kDeepSeekLetters) && range->first <= c;
}
bool IsDeepSeekSymbol(char32_t c) {
  return (c >= U'!' && c <= U'/') || (c >= U':' && c <= U'~') || (c >= 0xFF01 && c <= 0xFF0F) ||
         (c >= 0xFF1A && c <= 0xFF5E) || (c >= 0x2018 && c <= 0x201F) || c == 0x3001 || c == 0x3002;
}
bool IsDeepSeekEastAsian(char32_t c) {
  return !IsSpace(c) && ((c >= 0x0800 && c <= 0x9FA5) || (c >= 0xAC00 && c <= 0xD7FF));
}

using Matches = bool (*)(char32_t);

// One piece that is being cut: text between two positions, with an end that is safe to look beyond.
class Scanner {
 public:
  explicit Scanner(std::u32string_view text) : text_(text) {}

  size_t size() const { return text_.size(); }
  bool Is(size_t i, Matches matches) const { return i < text_.size() && matches(text_[i]); }
  bool Is(size_t i, char32_t c) const { return i < text_.size() && text_[i] == c; }

  // The first position from `i` on that does not match, at most `max_length` further.
  size_t SkipRun(size_t i, Matches matches, size_t max_length = SIZE_MAX) const {
    const size_t limit = std::min(max_length, text_.size() - i) + i;
    while (i < limit && matches(text_[i])) ++i;
    return i;
  }

 private:
  std::u32string_view text_;
};

// Cuts out what match(scanner, i) finds: the end of a match that starts at i, or i for none.
template <typename Match>
void SplitMatches(std::u32string_view piece, std::vector<size_t>& ends, Match match) {
  const Scanner scanner(piece);
  size_t begin = 0;  // of what does not match
  for (size_t i = 0; i < piece.size();) {
    const size_t end = match(scanner, i);
    if (end == i) {
      ++i;
      continue;
    }
    if (i > begin) ends.push_back(i);
    ends.push_back(end);
    begin = i = end;
  }
  if (begin < piece.size()) ends.push_back(piece.size());
}

template <Matches kMatches>
void Each(std::u32string_view piece, std::vector<size_t>& ends) {
  SplitMatches(piece, ends,
               [](const Scanner& text, size_t i) { return text.Is(i, kMatches) ? i + 1 : i; });
}

template <Matches kMatches>
void Runs(std::u32string_view piece, std::vector<size_t>& ends) {
  SplitMatches(piece, ends,
               [](const Scanner& text, size_t i) { return text.SkipRun(i, kMatches); });
}

// No class that follows a space here holds spaces itself.
template <Matches kMatches>
void SpaceAndRuns(std::u32string_view piece, std::vector<size_t>& ends) {
  SplitMatches(piece, ends, [](const Scanner& text, size_t i) {
    const size_t begin = text.Is(i, IsSpace) ? i + 1 : i;
    const size_t end = text.SkipRun(begin, kMatches);
    return end > begin ? end : i;
  });
}

void AsciiDigitTriples(std::u32string_view piece, std::vector<size_t>& ends) {
  SplitMatches(piece, ends, [](const Scanner& text, size_t i) {
    const bool is_triple =
        text.Is(i, IsAsciiDigit) && text.Is(i + 1, IsAsciiDigit) && text.Is(i + 2, IsAsciiDigit);
    return is_triple ? i + 3 : i;
  });
}

void TrailingSpace(std::u32string_view piece, std::vector<size_t>& ends) {
  size_t begin = piece.size();
  while (begin > 0 && IsSpace(piece[begin - 1])) --begin;
  if (begin > 0) ends.push_back(begin);
  if (begin < piece.size()) ends.push_back(piece.size());
}

// 's 't 'm 'd 're 've 'll at i: its end, or i.
size_t SkipContraction(const Scanner& text, size_t i, bool any_case) {
  if (!text.Is(i, U'\'')) return i;
  const auto is = [&](size_t at, char32_t lower) {
    return text.Is(at, lower) || (any_case && text.Is(at, lower - U'a' + U'A'));
  };
  if (is(i + 1, U's') || is(i + 1, U't') || is(i + 1, U'm') || is(i + 1, U'd')) return i + 2;
  if (is(i + 1, U'r') || is(i + 1, U'v')) return is(i + 2, U'e') ? i + 3 : i;
  return is(i + 1, U'l') && is(i + 2, U'l') ? i + 3 : i;
}

// White space before a word leaves its last character to the word: \s+(?!\S)|\s+
size_t SkipSpaces(const Scanner& text, size_t i) {
  const size_t end = text.SkipRun(i, IsSpace);
  return end < text.size() && end - i > 1 ? end - 1 : end;
}

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Every character belongs to some word, so the words follow each other without gaps.
void Gpt2Words(std::u32string_view piece, std::vector<size_t>& ends) {
  SplitMatches(piece, ends, [](const Scanner& text, size_t i) {
    if (const size_t end = SkipContraction(text, i, /*any_case=*/false); end > i) return end;
    const size_t begin = text.Is(i, U' ') ? i + 1 : i;
    for (const Matches matches : {IsLetter, IsNumber, IsOther}) {
      if (text.Is(begin, matches)) return text.SkipRun(begin, matches);
    }
    return SkipSpaces(text, i);
  });
}

#define KVERN_WORDS_BEFORE_NUMBER R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)"
#define KVERN_WORDS_AFTER_NUMBER R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"

// The words of Llama 3 and Qwen 2, which differ in how many digits hold together.
template <size_t kMaxDigits>
void ModernWords(std::u32string_view piece, std::vector<size_t>& ends) {
  SplitMatches(piece, ends, [](const Scanner& text, size_t i) {
    if (const size_t end = SkipContraction(text, i, /*any_case=*/true); end > i) return end;
    if (text.Is(i, IsNumber)) return text.SkipRun(i, IsNumber, kMaxDigits);
    const bool may_lead = !text.Is(i, IsNewline) && !text.Is(i, IsLetter);
    const size_t begin = may_lead ? i + 1 : i;
    if (text.Is(begin, IsLetter)) return text.SkipRun(begin, IsLetter);
    const size_t other = text.Is(i, U' ') ? i + 1 : i;
    if (text.Is(other, IsOther)) return text.SkipRun(text.SkipRun(other, IsOther), IsNewline);

    size_t behind_newline = i;
    size_t end = i;
    for (; text.Is(end, IsSpace); ++end) {
      if (text.Is(end, IsNewline)) behind_newline = end + 1;
    }
    return behind_newline > i ? behind_newline : SkipSpaces(text, i);
  });
}

constexpr SplitStep kEachNumber = {R"(\p{N})", Each<IsNumber>};
constexpr SplitStep kNumbers = {R"(\p{N}+)", Runs<IsNumber>};
constexpr SplitStep kEachNewline = {R"([\r\n])", Each<IsNewline>};
constexpr SplitStep kGpt2Words = {kGpt2Pattern, Gpt2Words};
constexpr SplitStep kDigitTriples = {"[0-9][0-9][0-9]", AsciiDigitTriples};
constexpr SplitStep kEastAsian = {R"([\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+)",
                                  Runs<IsDeepSeekEastAsian>};

const std::vector<PreTokenizer>& Table() {
  static const std::vector<PreTokenizer> kTable = {
      {.names = {"default"},
       .steps =
           {{R"([\p{P}$+<=>^~|]+)", Runs<IsDefaultSymbol>}, kGpt2Words, kNumbers, kDigitTriples}},
      {.names = {"gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "exaone4", "mpt", "olmo",
                 "jais", "trillion", "granite-docling"},
       .steps = {kGpt2Words}},
      {.names = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
                 "mellum2"},
       .steps = {kEachNumber, kGpt2Words}},
      {.names = {"falcon"},
       .steps = {{R"([\p{P}$+<=>^~|`]+)", Runs<IsFalconSymbol>}, kGpt2Words, kDigitTriples}},
      {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0",
                 "lfm2"},
       .steps = {{KVERN_WORDS_BEFORE_NUMBER R"(\p{N}{1,3})" KVERN_WORDS_AFTER_NUMBER,
                  ModernWords<3>}},
       .whole_words = true,
       .add_bos = true},
      {.names = {"dbrx", "smaug-bpe"},
       .steps = {{KVERN_WORDS_BEFORE_NUMBER R"(\p{N}{1,3})" KVERN_WORDS_AFTER_NUMBER,
                  ModernWords<3>}}},
      {.names = {"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan",
                 "solar-open", "grok-2"},
       .steps = {{KVERN_WORDS_BEFORE_NUMBER R"(\p{N})" KVERN_WORDS_AFTER_NUMBER, ModernWords<1>}}},
      {.names = {"deepseek-llm"},
       .steps = {kEachNewline,
                 {R"(\s?[letters of kDeepSeekLetters]+)", SpaceAndRuns<IsDeepSeekLetter>},
                 {R"(\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3001\u3002]+)",
                  SpaceAndRuns<IsDeepSeekSymbol>},
                 {R"(\s+$)", TrailingSpace},
                 kEastAsian,
                 kNumbers}},
      {.names = {"deepseek-coder"},
       .steps = {kEachNewline,
                 {R"(\s?\p{L}+)", SpaceAndRuns<IsLetter>},
                 {R"(\s?\p{P}+)", SpaceAndRuns<IsPunctuation>},
                 kEastAsian,
                 kEachNumber}},
  };
  return kTable;
}

#undef KVERN_WORDS_BEFORE_NUMBER
#undef KVERN_WORDS_AFTER_NUMBER

}  // namespace

std::span<const PreTokenizer> PreTokenizers() { return Table(); }

const PreTokenizer* FindPreTokenizer(std::string_view name) {
  for (const PreTokenizer& row : Table()) {
    if (std::ranges::find(row.names, name) != row.names.end()) return &row;
  }
  return nullptr;
}

std::string PreTokenizerNames() {
  std::string names;
  for (const PreTokenizer& row : Table()) {
    for (const std::string_view name : row.names) {
      if (!names.empty()) names += ", ";
      names += name;
    }
  }
  return names;
}

std::vector<size_t> SplitWords(const PreTokenizer& pre_tokenizer, std::u32string_view text) {
  std::vector<size_t> ends;
  if (text.empty()) return ends;
  ends.push_back(text.size());
  std::vector<size_t> finer;
  std::vector<size_t> local;
  for (const SplitStep& step : pre_tokenizer.steps) {
    finer.clear();
    size_t begin = 0;
    for (const size_t end : ends) {
      local.clear();
      step.split(text.substr(begin, end - begin), local);
      for (const size_t piece_end : local) finer.push_back(begin + piece_end);
      begin = end;
    }
    ends.swap(finer);
  }
  return ends;
}

}  // namespace kvern::text
