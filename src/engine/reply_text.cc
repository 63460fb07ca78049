#include "engine/reply_text.h"

#include <algorithm>

namespace kvern::engine {

ReplyText::ReplyText(const text::Tokenizer* tokenizer, std::span<const std::string> stops)
    : stops_(stops) {
  if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer);
}

bool ReplyText::Push(TokenId token, std::string& out) {
  if (!detokenizer_) return false;
  held_ += detokenizer_->Push(token);
  if (const auto stop = FindStop()) {
    out.append(held_, 0, *stop);
    held_.clear();
    detokenizer_->Flush();  // the beginning of a character after the stop is no text either
    return true;
  }
  const size_t num_certain = held_.size() - NumUncertain();
  out.append(held_, 0, num_certain);
  held_.erase(0, num_certain);
  return false;
}

void ReplyText::Flush(std::string& out) {
  if (!detokenizer_) return;
  out += held_;
  out += detokenizer_->Flush();
  held_.clear();
}

std::optional<size_t> ReplyText::FindStop() const {
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first == std::string::npos) return std::nullopt;
  return first;
}

size_t ReplyText::NumUncertain() const {
  size_t most = 0;
  for (const std::string& stop : stops_) {
    for (size_t size = std::min(stop.size() - 1, held_.size()); size > most; --size) {
      if (held_.compare(held_.size() - size, size, stop, 0, size) == 0) most = size;
    }
  }
  return most;
}

}  // namespace kvern::engine
