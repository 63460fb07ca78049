// Receipt: what a reply was computed from and a digest of what it said, so that anybody with the
// model can replay it and must get the same digest (rule G7). docs/receipts.md has the format.
//
// Plain data and pure functions; AnswerHasher belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kvern/engine.h"
#include "kvern/kv.h"

namespace kvern::engine {

// The model as its K/V knows it.
struct ReceiptModel {
  std::string name;
  std::string fingerprint;  // hex: the digest of fields, groups and numerics version (rule K12)
  uint32_t numerics_version = 0;
  std::string k_dtype;
  std::string v_dtype;
  // What the fingerprint is the digest of, so that a difference has a name. Digests are hex.
  std::vector<kv::FingerprintField> fields;
};

// Fingerprint and fields of what is cached under `spec` in blocks of `groups`. Errors: those of
// kv::Fingerprint::Make.
Result<ReceiptModel> MakeReceiptModel(const kv::NamespaceSpec& spec,
                                      std::span<const kv::GroupSpec> groups);

struct AnswerSummary {
  struct Completion {
    kvern::FinishReason finish = kvern::FinishReason::kFailed;
    size_t num_tokens = 0;
  };
  std::vector<Completion> completions;  // [n]
  std::string digest;                   // hex
};

// Digests an answer as it comes. How it is cut into chunks does not matter.
class AnswerHasher {
 public:
  explicit AnswerHasher(size_t num_completions);

  // REQUIRES: chunk.completion < num_completions.
  void Add(const Chunk& chunk);

  AnswerSummary Summary() const;

 private:
  struct Completion {
    AnswerSummary::Completion summary;
    kv::Digest digest{};  // of the tokens so far
  };
  std::vector<Completion> completions_;
};

struct Receipt {
  ReceiptModel model;
  // What decides the answer: tokens, sampling, seed, n, max_tokens, stop, stop_tokens, ignore_end.
  // The rest is as a request has it by default.
  Request request;
  AnswerSummary answer;
};

// The receipt of an answer to `request`, whose prompt is its tokens, within `context`. None unless
// all completions ended with stop or length.
std::optional<Receipt> MakeReceipt(const ReceiptModel& model, const Request& request,
                                   AnswerSummary answer, size_t context);

// One line of JSON.
std::string ToJson(const Receipt& receipt);

// Errors: kInvalidArgument, naming the field.
Result<Receipt> ParseReceipt(std::string_view json);

// One line for each difference, for people; the second is the one at hand. `FindModelDifferences`
// says why a replay could not give the same answer, `FindAnswerDifferences` that it did not.
std::vector<std::string> FindModelDifferences(const ReceiptModel& written,
                                              const ReceiptModel& here);
std::vector<std::string> FindAnswerDifferences(const AnswerSummary& written,
                                               const AnswerSummary& replayed);

}  // namespace kvern::engine
