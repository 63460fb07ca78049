#include "text/jinja/lexer.h"

#include <algorithm>
#include <cctype>

#include "text/jinja/runtime.h"
#include "text/jinja/string_literal.h"
#include "text/jinja/unicode.h"

namespace kvern::text::jinja {
namespace {

std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else if (i + 1 >= source.size() || source[i + 1] != '\n') {
      out.push_back('\n');
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// Bytes of the character that `text` begins with, if it is of the wanted classes; else 0.
size_t MatchLength(std::string_view text, uint16_t classes) {
  if (text.empty()) return 0;
  size_t length = 1;
  while (length < 4 && length < text.size() &&
         (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) {
    ++length;
  }
  const std::u32string decoded = Decode(text.substr(0, length));
  const bool matches = decoded.size() == 1 && (CharClasses(decoded[0]) & classes) != 0;
  return matches ? length : 0;
}

size_t SpaceLength(std::string_view text) {
  size_t length = 0;
  while (const size_t next = MatchLength(text.substr(length), kSpace)) length += next;
  return length;
}

std::string_view TrimRight(std::string_view text) {
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && text.size() - start < 4 &&
           (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) {
      --start;
    }
    if (MatchLength(text.substr(start), kSpace) != text.size() - start) break;
    text = text.substr(0, start);
  }
  return text;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), text_(source_) {}

  Result<std::vector<Token>> Run() {
    while (at_ < text_.size()) {
      if (Status status = Root(); !status.ok()) return AtLine(line_, status.error());
    }
    Add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const { return text_.substr(at_); }
  bool At(std::string_view wanted) const { return Rest().starts_with(wanted); }
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  void Add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }

  // Moves on, and remembers whether what was read ends a line.
  void Advance(size_t count) {
    if (count == 0) return;
    const std::string_view read = text_.substr(at_, count);
    line_ += static_cast<int>(std::count(read.begin(), read.end(), '\n'));
    starts_line_ = read.back() == '\n';
    at_ += count;
  }

  // Text up to the next tag, then the tag.
  Status Root() {
    size_t begin = text_.find('{', at_);
    while (begin != std::string_view::npos &&
           std::string_view("{%#").find(begin + 1 < text_.size() ? text_[begin + 1] : ' ') ==
               std::string_view::npos) {
      begin = text_.find('{', begin + 1);
    }
    if (begin == std::string_view::npos) {
      Add(Token::Kind::kData, std::string(Rest()));
      Advance(Rest().size());
      return {};
    }
    const char tag = text_[begin + 1];
    const char sign = Sign(begin + 2);
    EmitData(Rest().substr(0, begin - at_), sign, tag == '{');
    Advance(begin - at_ + 2 + (sign != '\0' ? 1 : 0));
    if (tag == '#') return Comment();
    if (tag == '{') {
      Add(Token::Kind::kVariableBegin, "");
      return Inside(Token::Kind::kVariableEnd, "}}");
    }
    if (const size_t length = RawBeginLength()) {
      Advance(length);
      return Raw();
    }
    Add(Token::Kind::kBlockBegin, "");
    return Inside(Token::Kind::kBlockEnd, "%}");
  }

  char Sign(size_t at) const {
    if (at >= text_.size()) return '\0';
    return text_[at] == '-' || text_[at] == '+' ? text_[at] : '\0';
  }

  void EmitData(std::string_view data, char sign, bool is_variable) {
    if (sign == '-') {
      data = TrimRight(data);
    } else if (sign != '+' && !is_variable) {
      const size_t line_start = data.rfind('\n') + 1;  // npos + 1 is 0
      const std::string_view tail = data.substr(line_start);
      const bool is_blank = SpaceLength(tail) == tail.size();
      if ((line_start > 0 || starts_line_) && is_blank) data = data.substr(0, line_start);
    }
    if (!data.empty()) Add(Token::Kind::kData, std::string(data));
  }

  // What follows a tag's last two characters and goes with them.
  void SkipAfterEnd(char sign, bool trims_newline) {
    if (sign == '-') {
      Advance(SpaceLength(Rest()));
    } else if (sign == '\0' && trims_newline && Peek() == '\n') {
      Advance(1);
    }
  }

  Status Comment() {
    const size_t end = text_.find("#}", at_);
    if (end == std::string_view::npos) return TemplateError("Missing end of comment tag");
    const char sign = end > at_ ? Sign(end - 1) : '\0';
    Advance(end + 2 - at_);
    SkipAfterEnd(sign, true);
    return {};
  }

  // Bytes of ` raw %}` with its sign and the space that the sign takes, or 0.
  size_t RawBeginLength() const {
    const std::string_view rest = Rest();
    size_t length = SpaceLength(rest);
    if (!rest.substr(length).starts_with("raw")) return 0;
    length += 3;
    length += SpaceLength(rest.substr(length));
    if (rest.substr(length).starts_with("%}")) return length + 2;
    if (!rest.substr(length).starts_with("-%}")) return 0;
    return length + 3 + SpaceLength(rest.substr(length + 3));
  }

  Status Raw() {
    for (size_t open = text_.find("{%", at_); open != std::string_view::npos;
         open = text_.find("{%", open + 1)) {
      const char sign = Sign(open + 2);
      size_t end = open + 2 + (sign != '\0' ? 1 : 0);
      end += SpaceLength(text_.substr(end));
      if (!text_.substr(end).starts_with("endraw")) continue;
      end += 6;
      end += SpaceLength(text_.substr(end));
      const char end_sign = Sign(end);
      if (end_sign != '\0') ++end;
      if (!text_.substr(end).starts_with("%}")) continue;
      EmitData(text_.substr(at_, open - at_), sign, false);
      Advance(end + 2 - at_);
      SkipAfterEnd(end_sign, true);
      return {};
    }
    return TemplateError("Missing end of raw directive");
  }

  // Tokens up to the end of a {{ or {% tag.
  Status Inside(Token::Kind end_kind, std::string_view end) {
    while (at_ < text_.size()) {
      if (open_.empty()) {
        const char sign = Sign(at_);
        const bool may_sign = sign == '-' || (sign == '+' && end == "%}");
        const size_t skip = may_sign ? 1 : 0;
        if (Rest().substr(skip).starts_with(end)) {
          Add(end_kind, "");
          Advance(skip + 2);
          SkipAfterEnd(may_sign ? sign : '\0', end == "%}");
          return {};
        }
      }
      KVERN_RETURN_IF_ERROR(OneToken());
    }
    return {};
  }

  Status OneToken() {
    if (const size_t space = SpaceLength(Rest())) {
      Advance(space);
      return {};
    }
    if (IsDigit(Peek())) return Number();
    if (MatchLength(Rest(), kIdentifierPart) > 0) return Name();
    if (Peek() == '\'' || Peek() == '"') return String();
    return Operator();
  }

  // Digits with single underscores between them.
  size_t DigitsLength(size_t from) const {
    size_t length = 0;
    while (IsDigit(Peek(from + length)) ||
           (length > 0 && Peek(from + length) == '_' && IsDigit(Peek(from + length + 1)))) {
      ++length;
    }
    return length;
  }

  size_t PrefixedLength() const {
    if (Peek() != '0') return 0;
    const char base = static_cast<char>(std::tolower(static_cast<unsigned char>(Peek(1))));
    const std::string_view digits = base == 'x'   ? "0123456789abcdefABCDEF"
                                    : base == 'o' ? "01234567"
                                    : base == 'b' ? "01"
                                                  : "";
    size_t length = 2;
    const auto is_digit = [&](size_t i) {
      return Peek(i) != '\0' && digits.find(Peek(i)) != std::string_view::npos;
    };
    while (is_digit(length) || (Peek(length) == '_' && is_digit(length + 1))) ++length;
    return length > 2 ? length : 0;
  }

  Status Number() {
    const bool follows_dot = at_ > 0 && text_[at_ - 1] == '.';
    const size_t whole = DigitsLength(0);
    size_t length = whole;
    if (!follows_dot) {
      if (Peek(length) == '.' && DigitsLength(length + 1) > 0) {
        length += 1 + DigitsLength(length + 1);
      }
      if (Peek(length) == 'e' || Peek(length) == 'E') {
        const size_t sign = Peek(length + 1) == '+' || Peek(length + 1) == '-' ? 1 : 0;
        const size_t exponent = DigitsLength(length + 1 + sign);
        if (exponent > 0) length += 1 + sign + exponent;
      }
    }
    const bool is_float = length > whole;
    if (!is_float) {
      if (const size_t prefixed = PrefixedLength()) {
        length = prefixed;
      } else if (Peek() == '0') {
        length = std::min(Rest().find_first_not_of("0_"), Rest().size());
      }
    }
    Add(is_float ? Token::Kind::kFloat : Token::Kind::kInteger,
        std::string(Rest().substr(0, length)));
    Advance(length);
    return {};
  }

  Status Name() {
    size_t length = 0;
    while (const size_t next = MatchLength(Rest().substr(length), kIdentifierPart)) length += next;
    Add(Token::Kind::kName, std::string(Rest().substr(0, length)));
    Advance(length);
    return {};
  }

  Status String() {
    const char quote = Peek();
    size_t length = 1;
    while (Peek(length) != quote) {
      length += Peek(length) == '\\' ? 2 : 1;
      if (at_ + length >= text_.size()) return TemplateError("a string is not closed");
    }
    KVERN_ASSIGN_OR_RETURN(std::string value, ResolveEscapes(Rest().substr(1, length - 1)));
    Add(Token::Kind::kString, std::move(value));
    Advance(length + 1);
    return {};
  }

  Status Operator() {
    constexpr std::string_view kLong[] = {"==", "!=", ">=", "<=", "//", "**"};
    constexpr std::string_view kShort = "+-*/%~[](){}><=.:|,;";
    size_t length = kShort.find(Peek()) != std::string_view::npos ? 1 : 0;
    for (const std::string_view symbol : kLong) {
      if (At(symbol)) length = 2;
    }
    if (length == 0) return TemplateError("unexpected char '{}'", Rest().substr(0, 1));
    const char c = Peek();
    if (c == '(' || c == '[' || c == '{') {
      open_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_.empty()) return TemplateError("unexpected '{}'", c);
      if (open_.back() != c)
        return TemplateError("unexpected '{}', expected '{}'", c, open_.back());
      open_.pop_back();
    }
    Add(Token::Kind::kOperator, std::string(Rest().substr(0, length)));
    Advance(length);
    return {};
  }

  const std::string source_;
  const std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool starts_line_ = true;
  std::string open_;  // closing brackets that are due, innermost last
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(NormalizeNewlines(source)).Run();
}

Error AtLine(int line, const Error& error) {
  return Errorf(error.code, "line {}: {}", line, error.message);
}

}  // namespace kvern::text::jinja
