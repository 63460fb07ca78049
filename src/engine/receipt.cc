#include "engine/receipt.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/check.h"
#include "engine/request_check.h"
#include "kv/digest.h"
#include "kv/fingerprint.h"

namespace kvern::engine {
namespace {

using Json = nlohmann::ordered_json;
using kvern::FinishReason;

static_assert(std::endian::native == std::endian::little, "digests are of little-endian numbers");

constexpr uint32_t kVersion = 1;
constexpr size_t kMaxBytes = size_t{64} << 20;
constexpr int kMaxDepth = 8;
constexpr size_t kMaxFields = 1024;
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxBiases = size_t{1} << 20;

template <typename T>
std::span<const std::byte> BytesOf(const T& value) {
  static_assert(std::has_unique_object_representations_v<T>);
  return std::as_bytes(std::span(&value, 1));
}

bool IsGood(FinishReason reason) {
  return reason == FinishReason::kStop || reason == FinishReason::kLength;
}

// ---- Writing

Json FieldJson(const kv::FieldValue& value) {
  if (const auto* const number = std::get_if<uint64_t>(&value)) return *number;
  if (const auto* const real = std::get_if<double>(&value)) return *real;
  if (const auto* const text = std::get_if<std::string>(&value)) return *text;
  return kv::ToHex(std::get<kv::Digest>(value));
}

Json TokensJson(std::span<const TokenId> tokens) {
  Json list = Json::array();
  for (const TokenId token : tokens) list.push_back(static_cast<uint32_t>(token));
  return list;
}

// A float is a double with the same value: shortest decimals bring it back exactly.
Json SamplingJson(const SamplingParams& params) {
  Json biases = Json::array();
  for (const auto& [id, bias] : params.logit_bias) {
    biases.push_back(Json::array({static_cast<uint32_t>(id), double{bias}}));
  }
  return {{"temperature", double{params.temperature}},
          {"top_k", params.top_k},
          {"top_p", double{params.top_p}},
          {"min_p", double{params.min_p}},
          {"repetition_penalty", double{params.repetition_penalty}},
          {"repetition_window", params.repetition_window},
          {"presence_penalty", double{params.presence_penalty}},
          {"frequency_penalty", double{params.frequency_penalty}},
          {"num_logprobs", params.num_logprobs},
          {"logit_bias", std::move(biases)}};
}

Json ModelJson(const ReceiptModel& model) {
  Json fields = Json::object();
  for (const kv::FingerprintField& field : model.fields) {
    fields[field.name] = FieldJson(field.value);
  }
  return {{"name", model.name},
          {"fingerprint", model.fingerprint},
          {"numerics_version", model.numerics_version},
          {"k_dtype", model.k_dtype},
          {"v_dtype", model.v_dtype},
          {"fields", std::move(fields)}};
}

Json RequestJson(const Request& request) {
  return {{"tokens", TokensJson(request.tokens)},
          {"seed", *request.seed},
          {"n", request.n},
          {"max_tokens", *request.max_tokens},
          {"sampling", SamplingJson(request.sampling)},
          {"stop", request.stop},
          {"stop_tokens", TokensJson(request.stop_tokens)},
          {"ignore_end", request.ignore_end}};
}

Json AnswerJson(const AnswerSummary& answer) {
  Json completions = Json::array();
  for (const AnswerSummary::Completion& completion : answer.completions) {
    completions.push_back(
        {{"finish", ToString(completion.finish)}, {"tokens", completion.num_tokens}});
  }
  return {{"completions", std::move(completions)}, {"digest", answer.digest}};
}

// ---- Reading

// An object of the document, whose members are read by name. Keeps the first error: what is read
// after it is empty.
class Reader {
 public:
  explicit Reader(const Json& root) : root_(root) {}

  Status status() const { return status_; }

  void Fail(std::string_view path, std::string_view problem) {
    if (status_.ok()) {
      status_ = Errorf(ErrorCode::kInvalidArgument, "receipt: {}: {}", path, problem);
    }
  }

  // The member at "a.b.c", or null after an error.
  const Json* Find(std::string_view path) {
    const Json* value = &root_;
    for (size_t begin = 0; value != nullptr && begin <= path.size();) {
      const size_t end = std::min(path.find('.', begin), path.size());
      const std::string key(path.substr(begin, end - begin));
      const auto member = value->is_object() ? value->find(key) : value->end();
      value = value->is_object() && member != value->end() ? &*member : nullptr;
      begin = end + 1;
    }
    if (value == nullptr) Fail(path, "is missing");
    return value;
  }

  template <typename T>
  T Integer(std::string_view path, T low, T high) {
    const Json* const value = Find(path);
    return value == nullptr ? T{} : IntegerOf(path, *value, low, high);
  }

  template <typename T>
  T IntegerOf(std::string_view path, const Json& value, T low, T high) {
    if (value.is_number_unsigned()) {
      const auto number = value.get<uint64_t>();
      if (std::cmp_greater_equal(number, low) && std::cmp_less_equal(number, high)) {
        return static_cast<T>(number);
      }
    } else if (value.is_number_integer()) {
      const auto number = value.get<int64_t>();
      if (std::cmp_greater_equal(number, low) && std::cmp_less_equal(number, high)) {
        return static_cast<T>(number);
      }
    }
    Fail(path, fmt::format("is not an integer in {} … {}", low, high));
    return T{};
  }

  TokenId Token(std::string_view path, const Json& value) {
    return TokenId{IntegerOf<uint32_t>(path, value, 0, std::numeric_limits<uint32_t>::max())};
  }

  float Float(std::string_view path) {
    const Json* const value = Find(path);
    return value == nullptr ? 0 : FloatOf(path, *value);
  }

  float FloatOf(std::string_view path, const Json& value) {
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (std::abs(number) <= double{std::numeric_limits<float>::max()}) {
      return static_cast<float>(number);
    }
    Fail(path, "is not a number");
    return 0;
  }

  bool Bool(std::string_view path) {
    const Json* const value = Find(path);
    if (value != nullptr && !value->is_boolean()) Fail(path, "is neither true nor false");
    return value != nullptr && value->is_boolean() && value->get<bool>();
  }

  std::string Text(std::string_view path, size_t max_bytes = kMaxNameBytes) {
    const Json* const value = Find(path);
    return value == nullptr ? std::string() : TextOf(path, *value, max_bytes);
  }

  std::string TextOf(std::string_view path, const Json& value, size_t max_bytes) {
    const auto* const text = value.get_ptr<const std::string*>();
    if (text != nullptr && text->size() <= max_bytes) return *text;
    Fail(path, fmt::format("is not a text of at most {} bytes", max_bytes));
    return {};
  }

  std::string Hex(std::string_view path) {
    std::string text = Text(path, 2 * sizeof(kv::Digest));
    const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    if (text.size() != 2 * sizeof(kv::Digest) || !std::ranges::all_of(text, is_digit)) {
      Fail(path, "is not a digest of 64 digits 0-9 and a-f");
    }
    return text;
  }

  // The elements of an array; none after an error.
  std::vector<const Json*> List(std::string_view path, size_t max_size) {
    const Json* const value = Find(path);
    if (value == nullptr) return {};
    if (!value->is_array() || value->size() > max_size) {
      Fail(path, fmt::format("is not a list of at most {}", max_size));
      return {};
    }
    std::vector<const Json*> list;
    list.reserve(value->size());
    for (const Json& element : *value) list.push_back(&element);
    return list;
  }

  std::vector<TokenId> Tokens(std::string_view path, size_t max_size) {
    std::vector<TokenId> tokens;
    for (const Json* const element : List(path, max_size)) tokens.push_back(Token(path, *element));
    return tokens;
  }

 private:
  const Json& root_;
  Status status_;
};

constexpr int32_t kMinInt = std::numeric_limits<int32_t>::min();
constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();

std::vector<kv::FingerprintField> ReadFields(Reader& reader) {
  constexpr std::string_view kPath = "model.fields";
  const Json* const object = reader.Find(kPath);
  if (object == nullptr) return {};
  if (!object->is_object() || object->size() > kMaxFields) {
    reader.Fail(kPath, fmt::format("is not an object of at most {} members", kMaxFields));
    return {};
  }
  std::vector<kv::FingerprintField> fields;
  for (const auto& [name, value] : object->items()) {
    if (value.is_number_unsigned()) {
      fields.push_back({.name = name, .value = value.get<uint64_t>()});
    } else if (value.is_number_float()) {
      fields.push_back({.name = name, .value = value.get<double>()});
    } else if (value.is_string()) {
      fields.push_back({.name = name, .value = value.get<std::string>()});
    } else {
      reader.Fail(kPath, "has a member that is neither a text nor a number ≥ 0");
    }
  }
  return fields;
}

ReceiptModel ReadModel(Reader& reader) {
  ReceiptModel model;
  model.name = reader.Text("model.name");
  model.fingerprint = reader.Hex("model.fingerprint");
  model.numerics_version = reader.Integer<uint32_t>("model.numerics_version", 0, UINT32_MAX);
  model.k_dtype = reader.Text("model.k_dtype");
  model.v_dtype = reader.Text("model.v_dtype");
  model.fields = ReadFields(reader);
  return model;
}

SamplingParams ReadSampling(Reader& reader) {
  SamplingParams params;
  params.temperature = reader.Float("request.sampling.temperature");
  params.top_k = reader.Integer<int32_t>("request.sampling.top_k", kMinInt, kMaxInt);
  params.top_p = reader.Float("request.sampling.top_p");
  params.min_p = reader.Float("request.sampling.min_p");
  params.repetition_penalty = reader.Float("request.sampling.repetition_penalty");
  params.repetition_window =
      reader.Integer<int32_t>("request.sampling.repetition_window", -1, kMaxInt);
  params.presence_penalty = reader.Float("request.sampling.presence_penalty");
  params.frequency_penalty = reader.Float("request.sampling.frequency_penalty");
  params.num_logprobs = reader.Integer<int32_t>("request.sampling.num_logprobs", 0, kMaxInt);
  constexpr std::string_view kBiases = "request.sampling.logit_bias";
  for (const Json* const pair : reader.List(kBiases, kMaxBiases)) {
    if (!pair->is_array() || pair->size() != 2) {
      reader.Fail(kBiases, "has an element that is not [token, bias]");
      break;
    }
    params.logit_bias.emplace_back(reader.Token(kBiases, (*pair)[0]),
                                   reader.FloatOf(kBiases, (*pair)[1]));
  }
  return params;
}

Request ReadRequest(Reader& reader) {
  Request request;
  request.tokens = reader.Tokens("request.tokens", kMaxPromptTokens);
  request.seed = reader.Integer<uint64_t>("request.seed", 0, UINT64_MAX);
  request.n = reader.Integer<size_t>("request.n", 1, kMaxCompletions);
  request.max_tokens = reader.Integer<size_t>("request.max_tokens", 0, kMaxPromptTokens);
  request.sampling = ReadSampling(reader);
  request.sampling.seed = *request.seed;
  for (const Json* const stop : reader.List("request.stop", kMaxStops)) {
    request.stop.push_back(reader.TextOf("request.stop", *stop, kMaxStopBytes));
  }
  request.stop_tokens = reader.Tokens("request.stop_tokens", kMaxStops);
  request.ignore_end = reader.Bool("request.ignore_end");
  if (reader.status().ok()) {
    const Status status = CheckRequest(request);
    if (!status.ok()) reader.Fail("request", status.error().message);
  }
  return request;
}

AnswerSummary ReadAnswer(Reader& reader, size_t n) {
  AnswerSummary answer;
  constexpr std::string_view kPath = "answer.completions";
  for (const Json* const element : reader.List(kPath, kMaxCompletions)) {
    Reader completion(*element);
    const std::string finish = completion.Text("finish");
    const bool is_stop = finish == ToString(FinishReason::kStop);
    const size_t num_tokens = completion.Integer<size_t>("tokens", 0, kMaxPromptTokens);
    if (!completion.status().ok() || (!is_stop && finish != ToString(FinishReason::kLength))) {
      reader.Fail(kPath, "has an element without a number of tokens and finish stop or length");
    }
    answer.completions.push_back(
        {is_stop ? FinishReason::kStop : FinishReason::kLength, num_tokens});
  }
  answer.digest = reader.Hex("answer.digest");
  if (answer.completions.size() != n) {
    reader.Fail(kPath,
                fmt::format("has {} elements, but request.n is {}", answer.completions.size(), n));
  }
  return answer;
}

// nlohmann throws; so does the callback, at what is nested too deeply to be a receipt.
Result<Json> ParseJson(std::string_view text) {
  const auto limit = [](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) throw std::length_error("nested too deeply");
    return true;
  };
  try {
    return Json::parse(text, limit);
  } catch (const std::exception& exception) {
    return Errorf(ErrorCode::kInvalidArgument, "receipt: is not JSON: {}", exception.what());
  }
}

// ASCII: what comes from outside must not play with the terminal.
std::string Quote(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

std::string Describe(const kv::FieldValue& value) { return Quote(FieldJson(value)); }

const kv::FieldValue* FindField(const ReceiptModel& model, std::string_view name) {
  const auto found = std::ranges::find(model.fields, name, &kv::FingerprintField::name);
  return found == model.fields.end() ? nullptr : &found->value;
}

}  // namespace

Result<ReceiptModel> MakeReceiptModel(const kv::NamespaceSpec& spec,
                                      std::span<const kv::GroupSpec> groups) {
  ReceiptModel model;
  model.numerics_version = spec.numerics_version;
  model.fields = spec.fingerprint;
  for (size_t i = 0; i < groups.size(); ++i) {
    model.fields.push_back(kv::GroupField(static_cast<kv::GroupId>(i), groups[i]));
  }
  KVERN_ASSIGN_OR_RETURN(const kv::Fingerprint fingerprint,
                         kv::Fingerprint::Make(spec.numerics_version, model.fields));
  model.fingerprint = kv::ToHex(fingerprint.digest());
  return model;
}

AnswerHasher::AnswerHasher(size_t num_completions) : completions_(num_completions) {}

void AnswerHasher::Add(const Chunk& chunk) {
  CHECK(chunk.completion < completions_.size());
  Completion& completion = completions_[chunk.completion];
  for (const SampledToken& token : chunk.tokens) {
    const std::array<uint32_t, 3> head = {static_cast<uint32_t>(token.id),
                                          std::bit_cast<uint32_t>(token.logprob),
                                          static_cast<uint32_t>(token.top.size())};
    completion.digest =
        kv::Blake2b256({completion.digest, BytesOf(head), std::as_bytes(std::span(token.top))});
  }
  completion.summary.num_tokens += chunk.tokens.size();
  if (chunk.finish) completion.summary.finish = *chunk.finish;
}

AnswerSummary AnswerHasher::Summary() const {
  AnswerSummary summary;
  kv::Digest all{};
  for (const Completion& completion : completions_) {
    summary.completions.push_back(completion.summary);
    const std::array<uint64_t, 2> head = {
        completion.summary.finish == FinishReason::kStop ? uint64_t{0} : uint64_t{1},
        completion.summary.num_tokens};
    all = kv::Blake2b256({all, BytesOf(head), completion.digest});
  }
  summary.digest = kv::ToHex(all);
  return summary;
}

std::optional<Receipt> MakeReceipt(const ReceiptModel& model, const Request& request,
                                   AnswerSummary answer, size_t context) {
  CHECK(request.seed.has_value());
  Receipt receipt;
  // Where no completion came to its bound, any bound that is not lower gives the same.
  size_t max_tokens = request.max_tokens.value_or(context + 1 - request.tokens.size());
  for (const AnswerSummary::Completion& completion : answer.completions) {
    if (!IsGood(completion.finish)) return std::nullopt;
    if (completion.finish == FinishReason::kLength) max_tokens = completion.num_tokens;
  }
  receipt.model = model;
  receipt.request.tokens = request.tokens;
  receipt.request.sampling = request.sampling;
  receipt.request.sampling.seed = *request.seed;
  receipt.request.seed = request.seed;
  receipt.request.n = request.n;
  receipt.request.max_tokens = max_tokens;
  receipt.request.stop = request.stop;
  receipt.request.stop_tokens = request.stop_tokens;
  receipt.request.ignore_end = request.ignore_end;
  receipt.answer = std::move(answer);
  return receipt;
}

std::string ToJson(const Receipt& receipt) {
  const Json document = {{"version", kVersion},
                         {"model", ModelJson(receipt.model)},
                         {"request", RequestJson(receipt.request)},
                         {"answer", AnswerJson(receipt.answer)}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Receipt> ParseReceipt(std::string_view json) {
  if (json.size() > kMaxBytes) {
    return Errorf(ErrorCode::kInvalidArgument, "receipt: {} bytes, over {}", json.size(),
                  kMaxBytes);
  }
  KVERN_ASSIGN_OR_RETURN(const Json document, ParseJson(json));
  Reader reader(document);
  reader.Integer<uint32_t>("version", kVersion, kVersion);
  Receipt receipt;
  receipt.model = ReadModel(reader);
  receipt.request = ReadRequest(reader);
  receipt.answer = ReadAnswer(reader, receipt.request.n);
  KVERN_RETURN_IF_ERROR(reader.status());
  return receipt;
}

std::vector<std::string> FindModelDifferences(const ReceiptModel& written,
                                              const ReceiptModel& here) {
  std::vector<std::string> lines;
  if (written.fingerprint == here.fingerprint) return lines;
  if (written.numerics_version != here.numerics_version) {
    lines.push_back(fmt::format("numerics_version: {} in the receipt, {} here",
                                written.numerics_version, here.numerics_version));
  }
  for (const kv::FingerprintField& field : here.fields) {
    const kv::FieldValue* const theirs = FindField(written, field.name);
    if (theirs != nullptr && Describe(*theirs) == Describe(field.value)) continue;
    lines.push_back(fmt::format("{}: {} in the receipt, {} here", field.name,
                                theirs == nullptr ? "nothing" : Describe(*theirs),
                                Describe(field.value)));
  }
  for (const kv::FingerprintField& field : written.fields) {
    if (FindField(here, field.name) != nullptr) continue;
    lines.push_back(fmt::format("{}: {} in the receipt, nothing here", Quote(field.name),
                                Describe(field.value)));
  }
  if (lines.empty()) {
    lines.push_back(
        fmt::format("fingerprint: {} in the receipt, {} here, from the same fields: "
                    "the receipt was altered",
                    written.fingerprint, here.fingerprint));
  }
  return lines;
}

std::vector<std::string> FindAnswerDifferences(const AnswerSummary& written,
                                               const AnswerSummary& replayed) {
  std::vector<std::string> lines;
  if (written.completions.size() != replayed.completions.size()) {
    lines.push_back(fmt::format("completions: {} in the receipt, {} here",
                                written.completions.size(), replayed.completions.size()));
    return lines;
  }
  for (size_t i = 0; i < written.completions.size(); ++i) {
    const AnswerSummary::Completion &a = written.completions[i], &b = replayed.completions[i];
    if (a.finish != b.finish) {
      lines.push_back(fmt::format("completion {}: finish is {} in the receipt, {} here", i,
                                  ToString(a.finish), ToString(b.finish)));
    }
    if (a.num_tokens != b.num_tokens) {
      lines.push_back(fmt::format("completion {}: {} tokens in the receipt, {} here", i,
                                  a.num_tokens, b.num_tokens));
    }
  }
  if (written.digest != replayed.digest) {
    lines.push_back(fmt::format("digest: {} in the receipt, {} here: other tokens or logprobs",
                                written.digest, replayed.digest));
  }
  return lines;
}

}  // namespace kvern::engine
