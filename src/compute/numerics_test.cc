// Guards of the numerics version: docs/numerics.md states every constant of the code, and results
// whose bits changed need a new version.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compute/numerics_version.h"
#include "compute/rope.h"
#include "compute/rows.h"
#include "compute/sampling.h"

namespace kvern::compute {
namespace {

static_assert(kNumericsVersion == 1, "a new version needs new golden digests below");

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << ": run from the root of the source tree";
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The hexadecimal floats of the text that have a fraction, with their signs, without suffixes.
std::vector<std::string> HexFloats(const std::string& text) {
  std::vector<std::string> found;
  for (size_t begin = text.find("0x"); begin != std::string::npos; begin = text.find("0x", begin)) {
    const size_t exponent = text.find_first_not_of("0123456789abcdefx.", begin);
    const size_t end = text.find_first_not_of("0123456789", exponent + 2);
    const size_t sign = begin > 0 && text[begin - 1] == '-' ? 1 : 0;
    if (text[exponent] == 'p' && text[begin + 3] == '.') {
      found.push_back(text.substr(begin - sign, end - begin + sign));
    }
    begin = exponent;
  }
  return found;
}

TEST(NumericsTest, TheDocumentStatesTheVersionAndEveryCoefficient) {
  const std::string document = ReadFile("docs/numerics.md");
  EXPECT_NE(document.find("Numerics version: **" + std::to_string(kNumericsVersion) + "**"),
            std::string::npos);
  for (const char* path : {"src/compute/isa/functions-inl.h", "src/compute/double_functions.cc"}) {
    const std::vector<std::string> coefficients = HexFloats(ReadFile(path));
    EXPECT_GT(coefficients.size(), 30u) << path;
    for (const std::string& coefficient : coefficients) {
      if (coefficient == "0x1.fffffep127") continue;  // the largest float
      EXPECT_NE(document.find(coefficient), std::string::npos) << path << ": " << coefficient;
    }
  }
}

// FNV-1a over the bits of the floats. NaNs are no part of a result.
class Digest {
 public:
  void Add(uint64_t word) {
    for (int i = 0; i < 8; ++i) value_ = (value_ ^ (word >> 8 * i & 0xFF)) * 0x100000001B3;
  }
  void Add(const float* x, size_t n) {
    for (size_t i = 0; i < n; ++i)
      Add(std::isnan(x[i]) ? 0x7FC00000 : std::bit_cast<uint32_t>(x[i]));
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xCBF29CE484222325;
};

TEST(NumericsTest, FunctionsKeepTheirBits) {
  SplitMix64 random(41);
  std::vector<float> x;
  for (int i = 0; i < 4000; ++i) x.push_back(static_cast<float>(random.Uniform() * 40 - 20));
  for (int i = 0; i < 4000; ++i) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(random.Next())));
  }
  Digest digest;
  std::vector<float> y(x.size());
  for (const RowFunction function :
       {kScalarRows.exp2_non_positive, kScalarRows.exp, kScalarRows.log, kScalarRows.tanh,
        kScalarRows.silu, kScalarRows.gelu_tanh}) {
    function(x.data(), x.size(), y.data());
    digest.Add(y.data(), y.size());
  }
  EXPECT_EQ(digest.value(), 1937407967801337705u);
}

TEST(NumericsTest, RowsAndRopeKeepTheirBits) {
  SplitMix64 random(42);
  std::vector<float> x(999), weight(999);
  for (float& value : x) value = static_cast<float>(random.Uniform() * 8 - 4);
  for (float& value : weight) value = static_cast<float>(random.Uniform());
  Digest digest;
  kScalarRows.rms_norm(x.data(), weight.data(), x.size(), 1e-5f, x.data());
  digest.Add(x.data(), x.size());
  const RopeTable rope = RopeTable::Create({.dims = 128, .base = 5e5}, 5000).value();
  for (const uint32_t position : {1u, 77u, 4999u}) {
    kScalarRows.rope_neox(x.data(), rope.cos(position), rope.sin(position), 128);
    kScalarRows.rope_interleaved(x.data() + 300, rope.cos(position), rope.sin(position), 128);
  }
  digest.Add(x.data(), x.size());
  const float log_sum = kScalarRows.log_sum_exp(x.data(), x.size());
  digest.Add(&log_sum, 1);
  kScalarRows.softmax(x.data(), x.size());
  digest.Add(x.data(), x.size());
  EXPECT_EQ(digest.value(), 6216778240349490216u);
}

TEST(NumericsTest, SamplingKeepsItsTokens) {
  SplitMix64 random(43);
  std::vector<float> logits(500);
  for (float& logit : logits) logit = static_cast<float>(random.Uniform() * 12);
  Digest digest;
  Sampler sampler(&kScalarRows, logits.size());
  SampledToken token;
  std::vector<TokenId> committed = {TokenId{3}, TokenId{5}};
  for (uint32_t position = 2; position < 300; ++position) {
    SamplingParams params;
    params.seed = 44;
    params.temperature = 0.8f;
    params.top_p = 0.95f;
    params.min_p = 0.05f;
    params.repetition_window = 64;
    params.repetition_penalty = 1.2f;
    params.presence_penalty = 0.3f;
    params.top_k = position % 3 == 0 ? 0 : 40;
    const SampleKey key = {.completion_index = position % 2, .position = position};
    ASSERT_TRUE(sampler.Sample(logits, params, {committed, 2}, key, token).ok());
    committed.push_back(token.id);
    digest.Add(static_cast<uint64_t>(token.id));
    digest.Add(&token.logprob, 1);
  }
  EXPECT_EQ(digest.value(), 1895933152456190243u);
}

}  // namespace
}  // namespace kvern::compute
