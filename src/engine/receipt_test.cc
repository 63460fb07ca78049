#include "engine/receipt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "engine/request_check.h"

namespace kvern::engine {
namespace {

using kvern::FinishReason;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ReceiptModel MakeModel(uint64_t layers = 2) {
  kv::NamespaceSpec spec;
  spec.numerics_version = 7;
  spec.fingerprint = {{.name = "weights", .value = std::string("ab12")},
                      {.name = "config.layers", .value = layers},
                      {.name = "config.rope_base", .value = 10000.0}};
  const kv::GroupSpec group{.block_bytes = 128};
  ReceiptModel model = *MakeReceiptModel(spec, {&group, 1});
  model.name = "tiny \"model\"";
  model.k_dtype = "f16";
  model.v_dtype = "q8_0";
  return model;
}

Request MakeRequest() {
  Request request;
  request.tokens = {TokenId{1}, TokenId{0}, TokenId{0xFFFFFFFF}};
  request.seed = (uint64_t{1} << 63) + 1;  // more than a double holds
  request.n = 2;
  request.max_tokens = 40;
  request.stop = {"\n\n", "Müller \"x\""};
  request.stop_tokens = {TokenId{9}};
  request.ignore_end = true;
  return request;
}

Chunk MakeChunk(uint32_t completion, std::vector<SampledToken> tokens,
                std::optional<FinishReason> finish = {}) {
  return {.completion = completion, .tokens = std::move(tokens), .text = {}, .finish = finish};
}

SampledToken Token(uint32_t id, float logprob, std::vector<TokenLogprob> top = {}) {
  return {TokenId{id}, logprob, std::move(top)};
}

// Two completions: three tokens and a stop, two and the length.
AnswerSummary MakeAnswer() {
  AnswerHasher hasher(2);
  hasher.Add(MakeChunk(0, {Token(4, -0.5f), Token(5, -1.25f)}));
  hasher.Add(MakeChunk(1, {Token(6, -2.0f), Token(7, -0.0f)}, FinishReason::kLength));
  hasher.Add(MakeChunk(0, {Token(8, -3.0f)}, FinishReason::kStop));
  return hasher.Summary();
}

Receipt MakeOne() { return *MakeReceipt(MakeModel(), MakeRequest(), MakeAnswer(), 64); }

std::string With(std::string json, const std::string& from, const std::string& to) {
  const size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << json;
  return json.replace(at, from.size(), to);
}

std::string MessageOf(const std::string& json) {
  const auto parsed = ParseReceipt(json);
  EXPECT_FALSE(parsed.ok()) << json;
  if (parsed.ok()) return {};
  EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
  return parsed.error().message;
}

TEST(Receipt, SurvivesJson) {
  const Receipt written = MakeOne();
  const auto read = ParseReceipt(ToJson(written));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(ToJson(*read), ToJson(written));
  EXPECT_THAT(FindModelDifferences(written.model, read->model), IsEmpty());
  EXPECT_THAT(FindAnswerDifferences(written.answer, read->answer), IsEmpty());
  EXPECT_EQ(read->model.name, "tiny \"model\"");
  EXPECT_EQ(read->model.v_dtype, "q8_0");
  EXPECT_EQ(read->request.tokens, MakeRequest().tokens);
  EXPECT_EQ(read->request.seed, MakeRequest().seed);
  EXPECT_EQ(read->request.sampling.seed, *MakeRequest().seed);
  EXPECT_EQ(read->request.stop, MakeRequest().stop);
  EXPECT_EQ(read->request.stop_tokens, MakeRequest().stop_tokens);
  EXPECT_TRUE(read->request.ignore_end);
  EXPECT_EQ(read->answer.completions[0].num_tokens, 3u);
  EXPECT_EQ(read->answer.completions[1].finish, FinishReason::kLength);
}

TEST(Receipt, EveryFloatSurvivesInAllItsBits) {
  constexpr uint64_t kSeed = 20;
  SCOPED_TRACE(kSeed);
  SplitMix64 random(kSeed);
  Receipt receipt = MakeOne();
  const auto draw = [&] {
    for (;;) {
      const auto value = std::bit_cast<float>(static_cast<uint32_t>(random.Below(1ull << 32)));
      if (value - value == 0) return value;  // finite
    }
  };
  for (int i = 0; i < 500; ++i) {
    SamplingParams& params = receipt.request.sampling;
    for (float* const value :
         {&params.temperature, &params.top_p, &params.min_p, &params.repetition_penalty,
          &params.presence_penalty, &params.frequency_penalty}) {
      *value = draw();
    }
    params.logit_bias = {{TokenId{3}, draw()},
                         {TokenId{4}, -0.0f},
                         {TokenId{5}, std::numeric_limits<float>::denorm_min()}};
    const auto read = ParseReceipt(ToJson(receipt));
    ASSERT_TRUE(read.ok()) << read.error().message;
    const SamplingParams& back = read->request.sampling;
    const float sent[] = {params.temperature,
                          params.top_p,
                          params.min_p,
                          params.repetition_penalty,
                          params.presence_penalty,
                          params.frequency_penalty,
                          params.logit_bias[0].second,
                          params.logit_bias[1].second,
                          params.logit_bias[2].second};
    const float got[] = {back.temperature,
                         back.top_p,
                         back.min_p,
                         back.repetition_penalty,
                         back.presence_penalty,
                         back.frequency_penalty,
                         back.logit_bias[0].second,
                         back.logit_bias[1].second,
                         back.logit_bias[2].second};
    ASSERT_EQ(std::memcmp(sent, got, sizeof(sent)), 0) << ToJson(receipt);
  }
}

TEST(Receipt, IsOnlyOfAnswersThatEndedWell) {
  for (const FinishReason reason :
       {FinishReason::kCancelled, FinishReason::kDeadline, FinishReason::kFailed}) {
    AnswerSummary answer = MakeAnswer();
    answer.completions[1].finish = reason;
    EXPECT_FALSE(MakeReceipt(MakeModel(), MakeRequest(), answer, 64));
  }
  AnswerHasher unfinished(2);
  EXPECT_FALSE(MakeReceipt(MakeModel(), MakeRequest(), unfinished.Summary(), 64));
}

TEST(Receipt, SaysTheTokensThatACompletionCouldHaveHad) {
  EXPECT_EQ(MakeOne().request.max_tokens, 2u);  // what its length was
  AnswerSummary stopped = MakeAnswer();
  stopped.completions[1].finish = FinishReason::kStop;
  EXPECT_EQ(MakeReceipt(MakeModel(), MakeRequest(), stopped, 64)->request.max_tokens, 40u);
  Request unbounded = MakeRequest();
  unbounded.max_tokens = {};
  EXPECT_EQ(MakeReceipt(MakeModel(), unbounded, stopped, 64)->request.max_tokens, 62u);
}

TEST(Receipt, LeavesOutWhatDoesNotDecideTheAnswer) {
  Request request = MakeRequest();
  request.tenant = "secret";
  request.cache_group = "secret";
  request.text = "secret";
  const auto receipt = MakeReceipt(MakeModel(), request, MakeAnswer(), 64);
  EXPECT_EQ(ToJson(*receipt).find("secret"), std::string::npos);
}

TEST(Receipt, ReadingNamesTheFieldThatIsWrong) {
  const std::string json = ToJson(MakeOne());
  ASSERT_TRUE(ParseReceipt(json).ok());
  EXPECT_THAT(MessageOf(""), HasSubstr("not JSON"));
  EXPECT_THAT(MessageOf("[]"), HasSubstr("version: is missing"));
  EXPECT_THAT(MessageOf(std::string(100, '[')), HasSubstr("too deeply"));
  EXPECT_THAT(MessageOf(With(json, "\"version\":1", "\"version\":2")), HasSubstr("version"));
  const struct {
    const char* from;
    const char* to;
    const char* field;
  } kRows[] = {
      {"\"seed\":9223372036854775809", "\"seed\":-1", "request.seed"},
      {"\"seed\":9223372036854775809", "\"seed\":1.5", "request.seed"},
      {"\"n\":2", "\"n\":0", "request.n"},
      {"\"n\":2", "\"n\":1", "answer.completions"},
      {"\"n\":2", "\"n\":100000", "request.n"},
      {"\"max_tokens\":2", "\"max_tokens\":\"2\"", "request.max_tokens"},
      {"[1,0,4294967295]", "[1,0,4294967296]", "request.tokens"},
      {"[1,0,4294967295]", "{}", "request.tokens"},
      {"\"top_k\":40", "\"top_k\":4000000000", "request.sampling.top_k"},
      {"\"min_p\":", "\"min_q\":", "request.sampling.min_p: is missing"},
      {"\"repetition_penalty\":1.0", "\"repetition_penalty\":1e39", "repetition_penalty"},
      {"\"logit_bias\":[]", "\"logit_bias\":[[1]]", "logit_bias"},
      {"\"ignore_end\":true", "\"ignore_end\":1", "request.ignore_end"},
      {"\"\\n\\n\"", "\"\"", "stop[0]"},
      {"\"\\n\\n\"", "7", "request.stop"},
      {"\"stop_tokens\":[9]", "\"stop_tokens\":[-9]", "request.stop_tokens"},
      {"\"finish\":\"stop\"", "\"finish\":\"failed\"", "answer.completions"},
      {"\"digest\":\"", "\"digest\":\"x", "answer.digest"},
      {"\"k_dtype\":\"f16\"", "\"k_dtype\":null", "model.k_dtype"},
      {"\"config.layers\":2", "\"config.layers\":[]", "model.fields"},
      {"\"fields\":{", "\"fields\":3,\"other\":{", "model.fields"},
  };
  for (const auto& row : kRows) {
    EXPECT_THAT(MessageOf(With(json, row.from, row.to)), HasSubstr(row.field)) << row.to;
  }
}

TEST(Receipt, NamesTheFieldsInWhichModelsDiffer) {
  const ReceiptModel one = MakeModel(), other = MakeModel(3);
  EXPECT_THAT(FindModelDifferences(one, one), IsEmpty());
  EXPECT_THAT(FindModelDifferences(one, other),
              ElementsAre("config.layers: 2 in the receipt, 3 here"));
  ReceiptModel more = one;
  more.fields.push_back({.name = "z\x1b", .value = std::string("\x1b[2J")});
  more.fingerprint[0] ^= 1;
  EXPECT_THAT(FindModelDifferences(more, one),
              ElementsAre("\"z\\u001b\": \"\\u001b[2J\" in the receipt, nothing here"));
  EXPECT_THAT(FindModelDifferences(one, more).front(), HasSubstr("nothing in the receipt"));
  ReceiptModel forged = one;
  forged.fingerprint[0] ^= 1;
  EXPECT_THAT(FindModelDifferences(forged, one), ElementsAre(HasSubstr("was altered")));
}

TEST(Answer, DigestDoesNotDependOnChunks) {
  AnswerHasher hasher(2);
  hasher.Add(MakeChunk(1, {Token(6, -2.0f)}));
  hasher.Add(MakeChunk(1, {Token(7, -0.0f)}));
  hasher.Add(MakeChunk(0, {}));
  hasher.Add(MakeChunk(0, {Token(4, -0.5f), Token(5, -1.25f), Token(8, -3.0f)}));
  hasher.Add(MakeChunk(0, {}, FinishReason::kStop));
  hasher.Add(MakeChunk(1, {}, FinishReason::kLength));
  EXPECT_EQ(hasher.Summary().digest, MakeAnswer().digest);
  EXPECT_THAT(FindAnswerDifferences(MakeAnswer(), hasher.Summary()), IsEmpty());
}

TEST(Answer, DigestDependsOnEveryBit) {
  const auto digest = [](const std::vector<Chunk>& chunks) {
    AnswerHasher hasher(2);
    for (const Chunk& chunk : chunks) hasher.Add(chunk);
    return hasher.Summary().digest;
  };
  const auto of_one = [&](SampledToken token, FinishReason finish = FinishReason::kStop) {
    return digest({MakeChunk(0, {std::move(token)}, finish), MakeChunk(1, {}, finish)});
  };
  const TokenLogprob top{TokenId{1}, -1.0f};
  const std::string base = of_one(Token(4, 0.0f, {top}));
  EXPECT_EQ(of_one(Token(4, 0.0f, {top})), base);
  EXPECT_NE(of_one(Token(5, 0.0f, {top})), base);
  EXPECT_NE(of_one(Token(4, -0.0f, {top})), base);
  EXPECT_NE(of_one(Token(4, 0.0f)), base);
  EXPECT_NE(of_one(Token(4, 0.0f, {top, top})), base);
  EXPECT_NE(of_one(Token(4, 0.0f, {{TokenId{2}, -1.0f}})), base);
  EXPECT_NE(of_one(Token(4, 0.0f, {{TokenId{1}, -1.0000001f}})), base);
  EXPECT_NE(of_one(Token(4, 0.0f, {top}), FinishReason::kLength), base);
  // The same tokens in the other completion; the top of one as the next token.
  EXPECT_NE(digest({MakeChunk(1, {Token(4, 0.0f, {top})}, FinishReason::kStop),
                    MakeChunk(0, {}, FinishReason::kStop)}),
            base);
  EXPECT_NE(digest({MakeChunk(0, {Token(4, 0.0f), Token(1, -1.0f)}, FinishReason::kStop),
                    MakeChunk(1, {}, FinishReason::kStop)}),
            base);
}

TEST(Answer, DifferencesSayWhat) {
  AnswerSummary other = MakeAnswer();
  other.completions[0].num_tokens = 4;
  other.completions[1].finish = FinishReason::kStop;
  other.digest[0] = other.digest[0] == 'a' ? 'b' : 'a';
  EXPECT_THAT(FindAnswerDifferences(MakeAnswer(), other),
              ElementsAre("completion 0: 3 tokens in the receipt, 4 here",
                          "completion 1: finish is length in the receipt, stop here",
                          HasSubstr("digest: ")));
  other.completions.pop_back();
  EXPECT_THAT(FindAnswerDifferences(MakeAnswer(), other),
              ElementsAre("completions: 2 in the receipt, 1 here"));
}

TEST(RequestCheck, NamesTheField) {
  const auto message = [](auto change) {
    Request request = MakeRequest();
    change(request);
    const Status status = CheckRequest(request);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(message([](Request&) {}), "");
  EXPECT_THAT(message([](Request& r) { r.n = 0; }), HasSubstr("n: 0"));
  EXPECT_THAT(message([](Request& r) { r.stop.push_back(""); }), HasSubstr("stop[2]"));
  EXPECT_THAT(message([](Request& r) { r.stop[1] = "\xC3"; }), HasSubstr("stop[1]: is not UTF-8"));
  EXPECT_THAT(message([](Request& r) { r.stop.resize(2000, "x"); }), HasSubstr("stop: more"));
  EXPECT_THAT(message([](Request& r) { r.stop_tokens.resize(2000); }), HasSubstr("stop_tokens"));
}

}  // namespace
}  // namespace kvern::engine
