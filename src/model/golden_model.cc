#include "model/golden_model.h"

#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/float16.h"
#include "base/fp_env.h"
#include "base/rng.h"
#include "model/gguf_metadata.h"

namespace kvern::model {
namespace {

using compute::QuantType;

constexpr uint64_t kAlignment = 32;  // of tensor data: the format's default

class Bytes {
 public:
  template <typename T>
  void Put(const T& value) {
    const auto* begin = reinterpret_cast<const std::byte*>(&value);
    data_.insert(data_.end(), begin, begin + sizeof(T));
  }
  void PutRaw(std::string_view text) {
    for (const char c : text) data_.push_back(static_cast<std::byte>(c));
  }
  void PutString(std::string_view text) {
    Put<uint64_t>(text.size());
    PutRaw(text);
  }
  void PutAll(const Bytes& other) {
    data_.insert(data_.end(), other.data_.begin(), other.data_.end());
  }
  template <typename T>
  void Overwrite(size_t offset, const T& value) {
    std::memcpy(&data_[offset], &value, sizeof(T));
  }
  void Align() { data_.resize((data_.size() + kAlignment - 1) / kAlignment * kAlignment); }
  size_t size() const { return data_.size(); }
  std::vector<std::byte> Take() { return std::move(data_); }

 private:
  std::vector<std::byte> data_;
};

class FileWriter {
 public:
  template <typename T>
  void AddValue(std::string_view key, MetadataKind kind, T value) {
    AddKey(key, kind);
    metadata_.Put(value);
  }
  void AddUint(std::string_view key, uint32_t value) {
    AddValue(key, MetadataKind::kUint32, value);
  }
  void AddString(std::string_view key, std::string_view value) {
    AddKey(key, MetadataKind::kString);
    metadata_.PutString(value);
  }
  void AddStrings(std::string_view key, const std::vector<std::string>& values) {
    AddArray(key, MetadataKind::kString, values.size());
    for (const std::string& value : values) metadata_.PutString(value);
  }
  void AddInts(std::string_view key, const std::vector<int32_t>& values) {
    AddArray(key, MetadataKind::kInt32, values.size());
    for (const int32_t value : values) metadata_.Put(value);
  }
  void AddTensor(std::string_view name, QuantType type, const std::vector<uint64_t>& dims,
                 const Bytes& data) {
    data_.Align();
    tensors_.PutString(name);
    tensors_.Put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) tensors_.Put(dim);
    tensors_.Put(static_cast<uint32_t>(type));
    tensors_.Put<uint64_t>(data_.size());
    data_.PutAll(data);
    ++num_tensors_;
  }

  std::vector<std::byte> Finish() const {
    Bytes file;
    file.PutRaw("GGUF");
    file.Put<uint32_t>(3);
    file.Put(num_tensors_);
    file.Put(num_metadata_);
    file.PutAll(metadata_);
    file.PutAll(tensors_);
    file.Align();
    file.PutAll(data_);
    return file.Take();
  }

 private:
  void AddKey(std::string_view key, MetadataKind kind) {
    metadata_.PutString(key);
    metadata_.Put(static_cast<uint32_t>(kind));
    ++num_metadata_;
  }
  void AddArray(std::string_view key, MetadataKind kind, uint64_t count) {
    AddKey(key, MetadataKind::kArray);
    metadata_.Put(static_cast<uint32_t>(kind));
    metadata_.Put(count);
  }

  Bytes metadata_, tensors_, data_;
  uint64_t num_metadata_ = 0, num_tensors_ = 0;
};

// --- Random weights: random quants under scales that give the wanted spread ---

class RandomTensors {
 public:
  RandomTensors(uint64_t seed, bool extreme) : random_(seed), extreme_(extreme) {}

  // Uniform in [center - spread, center + spread), but for the odd extreme one.
  float Float(float center, float spread) {
    const auto offset = static_cast<float>(2 * random_.Uniform() - 1);
    const uint64_t kind = random_.Below(64);
    constexpr float kExtremes[] = {-0.0f, 1e-40f, -1e-42f, 0x1.8p-31f, 3e4f, -3e4f};
    if (extreme_ && kind < std::size(kExtremes)) return kExtremes[kind];
    return center + spread * offset;
  }

  // One block of weights around 0 with about the standard deviation `std`.
  void AddBlock(QuantType type, float std, Bytes& out) {
    switch (type) {
      case QuantType::kF32:
        return out.Put(Float(0, std * kUniformSpread));
      case QuantType::kF16:
        return out.Put(FloatToHalf(Float(0, std * kUniformSpread)));
      case QuantType::kBf16:
        return out.Put(FloatToBfloat16(Float(0, std * kUniformSpread)));
      case QuantType::kQ4_0:
        return AddRandom<compute::BlockQ4_0>(out, std / 4.6f, 0);
      case QuantType::kQ4_1:
        return AddRandom<compute::BlockQ4_1>(out, std / 4.6f, -7.5f);
      case QuantType::kQ5_0:
        return AddRandom<compute::BlockQ5_0>(out, std / 9.2f, 0);
      case QuantType::kQ5_1:
        return AddRandom<compute::BlockQ5_1>(out, std / 9.2f, -15.5f);
      case QuantType::kQ8_0:
        return AddRandom<compute::BlockQ8_0>(out, std / 74.0f, 0);
      case QuantType::kQ4_K:
        return AddRandom<compute::BlockQ4_K>(out, std / 257.0f, 7.5f);
      case QuantType::kQ5_K:
        return AddRandom<compute::BlockQ5_K>(out, std / 528.0f, 15.5f);
      case QuantType::kQ6_K:
        return AddRandom<compute::BlockQ6_K>(out, std / 1366.0f, 0);
    }
    CHECK(false);
  }

 private:
  static constexpr float kUniformSpread = 1.7320508f;  // √3: half the width that gives deviation 1

  // Random bits, then a scale near `d` and, where the type has one, the minimum that is `offset`
  // times the scale and so centres the weights.
  template <typename Block>
  void AddRandom(Bytes& out, float d, float offset) {
    Block block;
    auto* bytes = reinterpret_cast<unsigned char*>(&block);
    for (size_t i = 0; i < sizeof(Block); ++i) {
      bytes[i] = static_cast<unsigned char>(random_.Below(256));
    }
    const float scale = d * static_cast<float>(0.5 + random_.Uniform());
    block.d = FloatToHalf(scale);
    if constexpr (requires { block.m; }) block.m = FloatToHalf(scale * offset);
    if constexpr (requires { block.dmin; }) block.dmin = FloatToHalf(scale * offset);
    out.Put(block);
  }

  SplitMix64 random_;
  const bool extreme_;
};

// --- The file ---

class Maker {
 public:
  explicit Maker(const GoldenModelSpec& spec) : spec_(spec), weights_(spec.seed, spec.extreme) {}

  std::vector<std::byte> Make() {
    AddMetadata();
    AddTokenizer();
    AddEmbedding();
    if (spec_.rope_factors) AddRopeFactors();
    for (uint32_t layer = 0; layer < spec_.num_layers; ++layer) AddLayer(layer);
    AddVector("output_norm.weight", spec_.hidden, 1.0f, 0.5f);
    if (!spec_.tied_head) AddMatrix("output.weight", spec_.vocab_size, spec_.hidden, 3.0f);
    return file_.Finish();
  }

 private:
  void AddMetadata() {
    const auto key = [this](const char* part) { return spec_.architecture + "." + part; };
    file_.AddString("general.architecture", spec_.architecture);
    file_.AddString("general.name", "golden");
    file_.AddUint(key("context_length"), 1024);
    file_.AddUint(key("block_count"), spec_.num_layers);
    file_.AddUint(key("embedding_length"), spec_.hidden);
    file_.AddUint(key("feed_forward_length"), spec_.ffn_hidden);
    file_.AddUint(key("attention.head_count"), spec_.num_heads);
    file_.AddUint(key("attention.head_count_kv"), spec_.num_kv_heads);
    file_.AddUint(key("attention.key_length"), spec_.head_dim);
    file_.AddUint(key("attention.value_length"), spec_.head_dim);
    file_.AddUint(key("rope.dimension_count"), spec_.head_dim);
    file_.AddValue(key("rope.freq_base"), MetadataKind::kFloat32, 10000.0f);
    file_.AddValue(key("attention.layer_norm_rms_epsilon"), MetadataKind::kFloat32, 1e-5f);
  }

  // A token for each byte in the spelling of byte-level BPE, unused ones, and an end.
  void AddTokenizer() {
    std::vector<std::string> tokens;
    std::vector<int32_t> kinds;
    constexpr int32_t kNormal = 1, kControl = 3, kUnused = 5;
    uint32_t spare = 0x100;  // stands for bytes that are not printable
    for (uint32_t byte = 0; byte < 256 && tokens.size() + 1 < spec_.vocab_size; ++byte) {
      const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      const uint32_t c = printable ? byte : spare++;
      tokens.push_back(c < 0x80 ? std::string(1, static_cast<char>(c))
                                : std::string{static_cast<char>(0xC0 | c >> 6),
                                              static_cast<char>(0x80 | (c & 0x3F))});
      kinds.push_back(kNormal);
    }
    while (tokens.size() + 1 < spec_.vocab_size) {
      tokens.push_back("<unused_" + std::to_string(tokens.size()) + ">");
      kinds.push_back(kUnused);
    }
    tokens.emplace_back("<|endoftext|>");
    kinds.push_back(kControl);
    file_.AddString("tokenizer.ggml.model", "gpt2");
    file_.AddString("tokenizer.ggml.pre", "gpt-2");
    file_.AddStrings("tokenizer.ggml.tokens", tokens);
    file_.AddInts("tokenizer.ggml.token_type", kinds);
    file_.AddStrings("tokenizer.ggml.merges", {});
    file_.AddUint("tokenizer.ggml.eos_token_id", spec_.vocab_size - 1);
  }

  void AddEmbedding() {
    const QuantType type = NextType();
    Bytes data = MatrixData(type, spec_.vocab_size, spec_.hidden, 0.25f);
    if (spec_.infinite_token) {
      constexpr float kInfinity = std::numeric_limits<float>::infinity();
      const size_t element = static_cast<size_t>(*spec_.infinite_token) * spec_.hidden;
      if (type == QuantType::kF32) {
        data.Overwrite(element * sizeof(float), kInfinity);
      } else {
        CHECK(type == QuantType::kF16 || type == QuantType::kBf16);
        data.Overwrite(element * sizeof(uint16_t), type == QuantType::kF16
                                                       ? FloatToHalf(kInfinity)
                                                       : FloatToBfloat16(kInfinity));
      }
    }
    file_.AddTensor("token_embd.weight", type, {spec_.hidden, spec_.vocab_size}, data);
  }

  void AddRopeFactors() {
    Bytes data;
    for (uint32_t i = 0; i < spec_.head_dim / 2; ++i) data.Put(1.0f + static_cast<float>(i) / 4);
    file_.AddTensor("rope_freqs.weight", QuantType::kF32, {spec_.head_dim / 2}, data);
  }

  void AddLayer(uint32_t layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const uint32_t q_width = spec_.num_heads * spec_.head_dim;
    const uint32_t kv_width = spec_.num_kv_heads * spec_.head_dim;
    const uint32_t hidden = spec_.hidden, ffn = spec_.ffn_hidden;
    AddVector(prefix + "attn_norm.weight", hidden, 1.0f, 0.5f);
    AddMatrix(prefix + "attn_q.weight", q_width, hidden, 1.4f);
    AddMatrix(prefix + "attn_k.weight", kv_width, hidden, 1.4f);
    AddMatrix(prefix + "attn_v.weight", kv_width, hidden, 1.0f);
    if (spec_.architecture == "qwen2") {
      AddVector(prefix + "attn_q.bias", q_width, 0.0f, 0.8f);
      AddVector(prefix + "attn_k.bias", kv_width, 0.0f, 0.8f);
      AddVector(prefix + "attn_v.bias", kv_width, 0.0f, 0.8f);
    }
    if (spec_.architecture == "qwen3") {
      AddVector(prefix + "attn_q_norm.weight", spec_.head_dim, 1.4f, 0.7f);
      AddVector(prefix + "attn_k_norm.weight", spec_.head_dim, 1.4f, 0.7f);
    }
    AddMatrix(prefix + "attn_output.weight", hidden, q_width, 1.5f);
    AddVector(prefix + "ffn_norm.weight", hidden, 1.0f, 0.5f);
    AddMatrix(prefix + "ffn_gate.weight", ffn, hidden, 1.2f);
    AddMatrix(prefix + "ffn_up.weight", ffn, hidden, 1.0f);
    AddMatrix(prefix + "ffn_down.weight", hidden, ffn, 1.5f);
  }

  void AddVector(const std::string& name, uint32_t length, float center, float spread) {
    Bytes data;
    for (uint32_t i = 0; i < length; ++i) data.Put(weights_.Float(center, spread));
    file_.AddTensor(name, QuantType::kF32, {length}, data);
  }

  // `gain` times the spread that keeps unit variance.
  void AddMatrix(const std::string& name, uint32_t rows, uint32_t cols, float gain) {
    const QuantType type = NextType();
    const float std = gain / std::sqrt(static_cast<float>(cols));
    file_.AddTensor(name, type, {cols, rows}, MatrixData(type, rows, cols, std));
  }

  Bytes MatrixData(QuantType type, uint32_t rows, uint32_t cols, float std) {
    const uint32_t block = compute::GetQuantTraits(type).block_elements;
    CHECK(cols % block == 0);
    Bytes data;
    for (uint64_t i = 0; i < uint64_t{rows} * cols / block; ++i) {
      weights_.AddBlock(type, std, data);
    }
    return data;
  }

  QuantType NextType() { return spec_.types[num_matrices_++ % spec_.types.size()]; }

  const GoldenModelSpec& spec_;
  RandomTensors weights_;
  FileWriter file_;
  size_t num_matrices_ = 0;
};

}  // namespace

std::vector<std::byte> MakeGoldenModel(const GoldenModelSpec& spec) {
  const ScopedFpEnv fp_env;
  return Maker(spec).Make();
}

}  // namespace kvern::model
