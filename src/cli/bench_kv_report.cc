#include "cli/bench_kv_report.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/reply_stats.h"
#include "cli/svg_chart.h"

namespace kvern::cli {
namespace {

using nlohmann::ordered_json;

std::vector<BenchColumn> TypeColumns(const std::vector<KvTypes>& types) {
  std::vector<BenchColumn> columns = {{.title = "", .width = 32, .is_text = true}};
  for (const KvTypes& type : types) columns.push_back({.title = NameOf(type), .width = 17});
  return columns;
}

struct UnitWords {
  const char* table;
  const char* key;
  int digits;
};

UnitWords WordsOf(KvUnit unit) {
  switch (unit) {
    case KvUnit::kTokensPerSecond:
      return {"t/s", "tokens_per_second", 1};
    case KvUnit::kMilliseconds:
      return {"ms", "milliseconds", 3};
    case KvUnit::kNanoseconds:
      break;
  }
  return {"ns", "nanoseconds", 1};
}

ordered_json DistanceJson(const KvDistance& distance) {
  return {{"mean_kl", distance.mean_kl},
          {"standard_error", distance.kl_error},
          {"same_top", distance.same_top}};
}

std::string FormatKl(const KvDistance& distance) {
  if (distance.mean_kl == 0) return "0";
  return fmt::format("{:.2e} ± {:.0e}", distance.mean_kl, distance.kl_error);
}

}  // namespace

KvSize SizeOf(const compute::KvLayout& layout, size_t memory_bytes) {
  return {.token_bytes = layout.token_bytes(),
          .capacity_tokens = memory_bytes / layout.block_bytes() * kBlockTokens};
}

KvReport::KvReport(std::vector<KvTypes> types, const ordered_json& settings,
                   BenchTable::TextSink out)
    : types_(std::move(types)),
      table_(BenchFormat::kMarkdown, TypeColumns(types_), std::move(out)),
      document_(std::make_unique<ordered_json>(settings)) {
  for (const KvTypes& type : types_) {
    (*document_)["types"].push_back({{"type", NameOf(type)},
                                     {"k", compute::GetKvDtype(type.k).name},
                                     {"v", compute::GetKvDtype(type.v).name}});
  }
}

KvReport::~KvReport() = default;

const ordered_json& KvReport::document() const { return *document_; }

template <typename Format>
void KvReport::AddRow(const std::string& title, const Format& cell_of) {
  std::vector<std::string> cells = {title};
  for (size_t type = 0; type < types_.size(); ++type) cells.push_back(cell_of(type));
  table_.Add(cells, {});
}

void KvReport::AddSizes(const std::vector<KvSize>& sizes, size_t memory_bytes) {
  (*document_)["memory_bytes"] = memory_bytes;
  for (size_t type = 0; type < types_.size(); ++type) {
    (*document_)["types"][type].update({{"bytes_per_token", sizes[type].token_bytes},
                                        {"capacity_tokens", sizes[type].capacity_tokens}});
  }
  AddRow("bytes a token", [&](size_t type) {
    const auto share =
        static_cast<double>(sizes[type].token_bytes) / static_cast<double>(sizes[0].token_bytes);
    return type == 0 ? fmt::format("{}", sizes[0].token_bytes)
                     : fmt::format("{} ({:.3f})", sizes[type].token_bytes, share);
  });
  AddRow(fmt::format("tokens in {}", FormatBytes(memory_bytes)),
         [&](size_t type) { return fmt::format("{}", sizes[type].capacity_tokens); });
}

void KvReport::AddTimings(const KvCase& kv_case, const std::vector<KvTiming>& timings) {
  const UnitWords words = WordsOf(kv_case.unit);
  ordered_json entry = {{"case", kv_case.key},
                        {"title", kv_case.title},
                        {"depth", kv_case.depth},
                        {"unit", words.key}};
  for (size_t type = 0; type < types_.size(); ++type) {
    entry["results"].push_back({{"type", NameOf(types_[type])},
                                {"value", timings[type].value},
                                {"speed_of_f16", timings[type].speed},
                                {"seconds", timings[type].seconds}});
  }
  (*document_)["cases"].push_back(std::move(entry));
  AddRow(fmt::format("{}, {}", kv_case.title, words.table), [&](size_t type) {
    const KvTiming& timing = timings[type];
    return type == 0 ? fmt::format("{:.{}f}", timing.value, words.digits)
                     : fmt::format("{:.{}f} ({:.2f}×)", timing.value, words.digits, timing.speed);
  });
  if (kv_case.key != "decode") return;
  auto& [depth, speeds] = decoding_.emplace_back();
  depth = kv_case.depth;
  for (const KvTiming& timing : timings) speeds.push_back(timing.value);
}

void KvReport::AddQualities(const KvQualities& qualities) {
  ordered_json quality = {{"positions", qualities.num_positions}, {"chunks", qualities.num_chunks}};
  for (size_t type = 0; type < types_.size(); ++type) {
    const KvQuality& own = qualities.by_type[type];
    quality["results"].push_back({{"type", NameOf(types_[type])},
                                  {"perplexity", own.perplexity},
                                  {"from_f16", DistanceJson(own.from_f16)},
                                  {"from_f32", DistanceJson(own.from_f32)}});
  }
  (*document_)["quality"] = std::move(quality);
  const auto& types = qualities.by_type;
  AddRow("perplexity", [&](size_t type) { return fmt::format("{:.4f}", types[type].perplexity); });
  for (const auto& [name, distance] :
       {std::pair{"f16", &KvQuality::from_f16}, std::pair{"f32", &KvQuality::from_f32}}) {
    const auto member = distance;
    AddRow(fmt::format("mean KL from {}", name),
           [&](size_t type) { return FormatKl(types[type].*member); });
    AddRow(fmt::format("same top token as {}", name), [&](size_t type) {
      return fmt::format("{:.2f} %", 100 * (types[type].*member).same_top);
    });
  }
}

std::string KvReport::DrawDecoding() const {
  LineChart chart = {.title = "Decoding by type of K and V",
                     .x_label = "tokens before",
                     .y_label = "tokens a second",
                     .lines = {}};
  for (size_t type = 0; type < types_.size(); ++type) {
    ChartLine& line = chart.lines.emplace_back();
    line.name = NameOf(types_[type]);
    for (const auto& [depth, speeds] : decoding_) {
      line.points.push_back({static_cast<double>(depth), speeds[type]});
    }
  }
  return RenderSvg(chart);
}

}  // namespace kvern::cli
