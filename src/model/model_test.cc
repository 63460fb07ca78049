// Configuration and weights of whole files: golden models, and what is refused about damaged ones.
#include "model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "model/arch/architecture.h"
#include "model/golden_model.h"
#include "model/vocab_loader.h"

namespace kvern::model {
namespace {

using compute::QuantType;
using testing::HasSubstr;

// A model file whose bytes can be patched in place.
class ModelFile {
 public:
  explicit ModelFile(const GoldenModelSpec& spec = {}) : bytes_(MakeGoldenModel(spec)) {}

  // Overwrites what follows the first `text` by `offset` bytes.
  template <typename T>
  ModelFile& Put(std::string_view text, size_t offset, T value) {
    std::memcpy(&bytes_.at(Find(text) + text.size() + offset), &value, sizeof(T));
    return *this;
  }
  // The value of a scalar metadata key. Its kind lies between key and value.
  template <typename T>
  ModelFile& Set(std::string_view key, T value) {
    return Put(key, 4, value);
  }
  ModelFile& SetKind(std::string_view key, MetadataKind kind) { return Put(key, 0, kind); }
  // Gives the first thing called `name` another name.
  ModelFile& Rename(std::string_view name) {
    bytes_[Find(name)] = std::byte{'x'};
    return *this;
  }

  Result<Model> Load(uint32_t max_positions = 16) const {
    KVERN_ASSIGN_OR_RETURN(const Gguf gguf, Gguf::Parse(bytes_, "tiny.gguf"));
    ThreadTeam team(1);
    return Model::Load(gguf, max_positions, &team);
  }
  Error LoadError() const {
    const auto model = Load();
    return model.ok() ? Error{} : model.error();
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  size_t Find(std::string_view text) const {
    const std::string_view all(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    const size_t at = all.find(text);
    CHECK(at != std::string_view::npos);
    return at;
  }

  std::vector<std::byte> bytes_;
};

TEST(ModelTest, EveryArchitectureAndTypeLoadsAsPlanned) {
  for (const Architecture* architecture : Architectures()) {
    for (const compute::QuantTraits& traits : compute::QuantTypes()) {
      GoldenModelSpec spec;
      spec.architecture = architecture->name;
      spec.types = {traits.type};
      spec.num_layers = 1;
      spec.hidden = spec.ffn_hidden = 256;
      spec.head_dim = 64;
      spec.vocab_size = 33;
      spec.rope_factors = true;
      const std::vector<std::byte> bytes = MakeGoldenModel(spec);
      const Gguf gguf = std::move(Gguf::Parse(bytes, "tiny.gguf")).value();
      const auto config = ReadConfig(gguf);
      ASSERT_TRUE(config.ok()) << config.error().message;
      const auto planned = PlanWeightBytes(gguf, *config);
      ASSERT_TRUE(planned.ok()) << planned.error().message;
      ThreadTeam team(2);
      double progress = 0;
      const auto model = Model::Load(gguf, 16, &team, [&](double done) { progress = done; });
      ASSERT_TRUE(model.ok()) << model.error().message;
      EXPECT_EQ(model->weights().bytes(), *planned);
      EXPECT_EQ(progress, 1.0);
      EXPECT_EQ(model->config().architecture, architecture->name);
      EXPECT_EQ(model->config().vocab_size, 33u);
    }
  }
}

TEST(ModelTest, GoldenModelsAreFunctionsOfTheirSpecification) {
  GoldenModelSpec spec;
  const auto bytes = MakeGoldenModel(spec);
  EXPECT_EQ(MakeGoldenModel(spec), bytes);
  spec.seed = 2;
  EXPECT_NE(MakeGoldenModel(spec), bytes);
}

TEST(ModelTest, GoldenModelsHaveATokenizer) {
  const std::vector<std::byte> bytes = MakeGoldenModel({});
  const auto tokenizer = LoadTokenizer(Gguf::Parse(bytes, "tiny.gguf").value());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->end_of_generation().size(), 1u);
}

TEST(ModelTest, AMissingKeyIsNamed) {
  for (const char* key : {"block_count", "embedding_length", "feed_forward_length",
                          "context_length", "attention.head_count"}) {
    const std::string full = std::string("llama.") + key;
    const Error error = ModelFile().Rename(full).LoadError();
    EXPECT_EQ(error.code, ErrorCode::kNotFound) << key;
    EXPECT_THAT(error.message, HasSubstr("tiny.gguf"));
    EXPECT_THAT(error.message, HasSubstr(full));
  }
}

TEST(ModelTest, AWrongKindIsNamed) {
  const Error error = ModelFile().SetKind("llama.block_count", MetadataKind::kFloat32).LoadError();
  EXPECT_EQ(error.code, ErrorCode::kCorrupt);
  EXPECT_THAT(error.message, HasSubstr("tiny.gguf"));
  EXPECT_THAT(error.message, HasSubstr("llama.block_count"));
  EXPECT_THAT(error.message, HasSubstr("float32"));
}

TEST(ModelTest, AbsurdNumbersAreNamed) {
  const std::pair<const char*, uint32_t> kNumbers[] = {
      {"llama.block_count", 0},
      {"llama.block_count", 4000000000},
      {"llama.embedding_length", 0},
      {"llama.embedding_length", 1u << 31},
      {"llama.feed_forward_length", 0xFFFFFFFF},
      {"llama.context_length", 0},
      {"llama.attention.head_count", 0},
      {"llama.attention.head_count_kv", 0},
      {"llama.attention.head_count_kv", 3},
      {"llama.attention.head_count_kv", 8},
      {"llama.attention.key_length", 0},
      {"llama.attention.key_length", 100000},
      {"llama.attention.value_length", 8},
      {"llama.rope.dimension_count", 15},
      {"llama.rope.dimension_count", 18},
  };
  for (const auto& [key, value] : kNumbers) {
    // The key, its kind: "head_count" is also the start of "head_count_kv".
    const std::string with_kind = key + std::string("\4\0\0\0", 4);
    const Error error = ModelFile().Put(with_kind, 0, value).LoadError();
    EXPECT_THAT(error.message, HasSubstr("tiny.gguf")) << key << " " << value;
    EXPECT_THAT(error.message, HasSubstr(key)) << value;
  }
  for (const float value : {0.0f, -1.0f, 1e30f, std::numeric_limits<float>::quiet_NaN()}) {
    for (const char* key : {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base"}) {
      EXPECT_THAT(ModelFile().Set(key, value).LoadError().message, HasSubstr(key)) << value;
    }
  }
}

TEST(ModelTest, AShapeThatDoesNotFitNamesTheTensor) {
  const std::pair<const char*, const char*> kCases[] = {
      {"llama.embedding_length", "token_embd.weight"},
      {"llama.feed_forward_length", "blk.0.ffn_gate.weight"},
  };
  for (const auto& [key, tensor] : kCases) {
    const Error error = ModelFile().Set<uint32_t>(key, 128).LoadError();
    EXPECT_EQ(error.code, ErrorCode::kCorrupt);
    EXPECT_THAT(error.message, HasSubstr(std::string("tiny.gguf: ") + tensor));
    EXPECT_THAT(error.message, HasSubstr("128"));
  }
  EXPECT_THAT(ModelFile().Set<uint32_t>("llama.attention.head_count_kv", 1).LoadError().message,
              HasSubstr("blk.0.attn_k.weight"));
  EXPECT_THAT(ModelFile().Set<uint32_t>("llama.embedding_length", 1u << 20).LoadError().message,
              HasSubstr("token_embd.weight"));
}

TEST(ModelTest, AMissingTensorIsNamed) {
  for (const char* name : {"token_embd.weight", "output_norm.weight", "blk.1.ffn_up.weight"}) {
    const Error error = ModelFile().Rename(name).LoadError();
    EXPECT_EQ(error.code, ErrorCode::kNotFound);
    EXPECT_THAT(error.message, HasSubstr(name));
  }
  // One more layer than the file has, and a thousand.
  for (const uint32_t layers : {3u, 1000u}) {
    EXPECT_THAT(ModelFile().Set("llama.block_count", layers).LoadError().message,
                HasSubstr("blk.2.attn_norm.weight"));
  }
}

TEST(ModelTest, AnUnsupportedArchitectureListsTheOthers) {
  GoldenModelSpec spec;
  spec.architecture = "llamb";
  const Error error = ModelFile(spec).LoadError();
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("'llamb'"));
  EXPECT_THAT(error.message, HasSubstr("qwen3"));
}

TEST(ModelTest, RopeThatCannotBeIsNamed) {
  EXPECT_THAT(ModelFile().Set("llama.rope.freq_base", 1e-30f).LoadError().message,
              HasSubstr("tiny.gguf: RoPE"));
}

}  // namespace
}  // namespace kvern::model
