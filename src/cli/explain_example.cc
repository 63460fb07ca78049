#include "cli/explain_example.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"

namespace kvern::cli {
namespace {

using engine::Matrix;
using engine::WorkedExample;
using engine::WorkedStep;
using Strings = std::vector<std::string>;

const Strings kWords = {"I", "love", "AI", "very"};

Strings Words(uint32_t first, uint32_t count) {
  return Strings(kWords.begin() + first, kWords.begin() + first + count);
}

// --- Matrices as text ---

// A number is split at its point, so that columns align there.
struct Cell {
  std::string whole;
  std::string fraction;  // with the point; empty for a whole number
};

Cell MakeCell(float x) {
  if (std::isinf(x)) return {"−∞", ""};
  std::string text = fmt::format("{:.3f}", x);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  const size_t point = std::min(text.find('.'), text.size());
  return {text.substr(0, point), text.substr(point)};
}

struct Table {
  std::string title;
  const Matrix* matrix;
  Strings columns = {};  // names; may be empty
};

size_t Width(const std::string& text) {  // in columns of a terminal; every character takes one
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string PadLeft(const std::string& text, size_t width) {
  return std::string(width - std::min(width, Width(text)), ' ') + text;
}

std::string PadRight(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, Width(text)), ' ');
}

// Title, column names and rows, all equally wide.
Strings TableLines(const Table& table) {
  const Matrix& matrix = *table.matrix;
  std::vector<Cell> cells;
  size_t whole = 0, fraction = 0;
  for (const float x : matrix.values) {
    cells.push_back(MakeCell(x));
    whole = std::max(whole, Width(cells.back().whole));
    fraction = std::max(fraction, cells.back().fraction.size());
  }
  size_t column = whole + fraction;
  for (const std::string& name : table.columns) column = std::max(column, Width(name));

  Strings lines = {table.title, ""};
  for (const std::string& name : table.columns) lines[1] += PadRight(name, column + 2);
  for (uint32_t r = 0; r < matrix.rows; ++r) {
    std::string line;
    for (uint32_t c = 0; c < matrix.cols; ++c) {
      const Cell& cell = cells[size_t{r} * matrix.cols + c];
      line += PadRight(PadLeft(cell.whole, whole) + cell.fraction, column + 2);
    }
    lines.push_back(line);
  }
  size_t width = 0;
  for (std::string& line : lines) {
    line.erase(line.find_last_not_of(' ') + 1);
    width = std::max(width, Width(line));
  }
  for (std::string& line : lines) line = PadRight(line, width);
  return lines;
}

// Tables with the same rows, side by side. `notes` go to the right of the rows; may be shorter.
std::string SideBySide(const Strings& row_names, const std::vector<Table>& tables,
                       const Strings& notes = {}) {
  constexpr size_t kNames = 8, kMaxWidth = 80;
  std::vector<Strings> blocks;
  bool has_columns = false;
  size_t width = kNames;
  for (const Table& table : tables) {
    blocks.push_back(TableLines(table));
    has_columns |= !table.columns.empty();
    width += Width(blocks.back()[0]);
  }
  const bool is_tight = width + 4 * (tables.size() - 1) > kMaxWidth;
  const std::string gap(is_tight ? 3 : 4, ' ');
  std::string text;
  for (size_t i = 0; i < row_names.size() + 2; ++i) {
    if (i == 1 && !has_columns) continue;
    std::string line = PadRight(i < 2 ? "" : "  " + row_names[i - 2], kNames);
    for (const Strings& block : blocks) line += block[i] + gap;
    if (i >= 2 && i - 2 < notes.size()) line += notes[i - 2];
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

// --- The steps ---

size_t RowBytes(const WorkedExample& example, uint32_t num_rows) {
  return num_rows * example.layout.token_bytes();
}

std::string PoolText(const kv::StateCounts& bytes) {
  return fmt::format("{} B active, {} B free", bytes.active, bytes.free);
}

bool SameBits(const float* a, const float* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

std::string AllocateText(const WorkedExample& example) {
  const compute::KvLayout& layout = example.layout;
  return fmt::format(R"(1. Allocate

  A block of the cache has room for {} tokens. The sequence takes one from the
  pool.

  block   {} B = K {} B ({} × {} {}) + V {} B ({} × {} {})
          Rows of V are padded from {} to {} numbers: kernels take 16 at a time.
  pool    {}

)",
                     kBlockTokens, layout.block_bytes(), layout.k_plane_bytes(), layout.head_dim,
                     kBlockTokens, GetKvDtype(layout.k_dtype).name, layout.v_plane_bytes(),
                     kBlockTokens, layout.v_dim(), GetKvDtype(layout.v_dtype).name, layout.head_dim,
                     layout.v_dim(), PoolText(example.prefill.pool_bytes));
}

std::string PrefillText(const WorkedExample& example) {
  const WorkedStep& step = example.prefill;
  const uint32_t rows = step.keys.rows;
  const Strings words = Words(0, rows);
  std::string text = R"(2. Prefill: the prompt "I love AI", three tokens in one pass

  Each token's embedding (a row of X) gives a query, a key and a value.

)";
  text += SideBySide(
      words, {{"Q = X·Wq", &step.queries}, {"K = X·Wk", &step.keys}, {"V = X·Wv", &step.values}});
  text += fmt::format(R"(
  Bulk write: {} rows of K and V go into the block, {} × {} B = {} B. They stay.
  Q is dropped: no later step needs it.

  Each query scores each key. No token may see a later one: the mask makes that
  score −∞, and so its weight 0.

)",
                      rows, rows, RowBytes(example, 1), RowBytes(example, rows));
  text += SideBySide(words, {{"S = Q·Kᵀ/√d + mask", &step.scores, words},
                             {"A = softmax of each row of S", &step.weights, words}});
  text += "\n  Each row of A mixes the values.\n\n";
  text += SideBySide(words, {{"O = A·V", &step.outputs}});
  return text + R"(
  In a model, the row of the last token goes on through the other layers and
  predicts the next token. Let it be "very".

)";
}

std::string DecodeText(const WorkedExample& example) {
  const WorkedStep& step = example.decode;
  const uint32_t length = step.cached_keys.rows;
  const uint32_t history = length - 1;
  const Strings words = Words(0, length), new_word = Words(history, 1);
  CHECK(SameBits(step.outputs.row(0), example.recomputed.outputs.row(history), step.outputs.cols));
  std::string text = R"(3. Decode: "very", one token

  Only the new token is projected.

)";
  text += SideBySide(
      new_word,
      {{"q = x·Wq", &step.queries}, {"k = x·Wk", &step.keys}, {"v = x·Wv", &step.values}});
  text += fmt::format(R"(
  Append: 1 row of K and V, {} B. No byte of the {} rows before it changes.

)",
                      RowBytes(example, 1), history);
  Strings notes(history);
  notes.push_back("← new");
  text += SideBySide(
      words, {{"K in the cache", &step.cached_keys}, {"V in the cache", &step.cached_values}},
      notes);
  text += fmt::format(R"(
  Read: q meets the {} rows before it ({} B) and its own. It needs no mask, for
  nothing is later.

)",
                      history, RowBytes(example, history));
  text += SideBySide(
      new_word, {{"s = q·Kᵀ/√d", &step.scores, words}, {"a = softmax(s)", &step.weights, words}});
  text += "\n" + SideBySide(new_word, {{"o = a·V", &step.outputs}});
  return text + fmt::format(R"(
  Without a cache, this step would project all {} tokens again: {} rows of Q, K
  and V instead of {}. Computed that way too, o is the same, bit for bit.

)",
                            length, 3 * length, 3);
}

// --- JSON ---

nlohmann::ordered_json MatrixJson(const Matrix& matrix) {
  auto rows = nlohmann::ordered_json::array();
  for (uint32_t r = 0; r < matrix.rows; ++r) {
    auto row = nlohmann::ordered_json::array();
    for (const float x : std::span(matrix.row(r), matrix.cols)) {
      if (std::isinf(x)) {
        row.push_back(nullptr);
      } else {
        row.push_back(x);
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

nlohmann::ordered_json PoolJson(const kv::StateCounts& bytes) {
  return {{"active", bytes.active},
          {"cached", bytes.cached},
          {"reserved", bytes.reserved},
          {"free", bytes.free}};
}

nlohmann::ordered_json StepJson(const WorkedExample& example, const WorkedStep& step) {
  const uint32_t rows = step.keys.rows;
  return {{"inputs", MatrixJson(step.inputs)},
          {"queries", MatrixJson(step.queries)},
          {"keys", MatrixJson(step.keys)},
          {"values", MatrixJson(step.values)},
          {"scores", MatrixJson(step.scores)},
          {"weights", MatrixJson(step.weights)},
          {"outputs", MatrixJson(step.outputs)},
          {"cached_keys", MatrixJson(step.cached_keys)},
          {"cached_values", MatrixJson(step.cached_values)},
          {"bytes_written", RowBytes(example, rows)},
          {"bytes_read", RowBytes(example, step.cached_keys.rows - rows)},
          {"pool_bytes", PoolJson(step.pool_bytes)}};
}

}  // namespace

std::string WorkedExampleText(const WorkedExample& example) {
  std::string text = fmt::format(R"(One attention head and its KV cache, step by step

  One layer, one head of d = {}, and identity weights, so that a token's query,
  key and value are its embedding. Every number below comes from the kernels and
  the cache that run real models.

)",
                                 example.layout.head_dim);
  text += AllocateText(example) + PrefillText(example) + DecodeText(example);
  return text + fmt::format(R"(4. Free

  The reply ends, and the block goes back to the pool.

  pool    {}

The kernels scale q by log2(e)/√d, so that weights are powers of two, and divide
by the sum of the weights last; S, s, A and a are shown converted back.
)",
                            PoolText(example.pool_after));
}

nlohmann::ordered_json WorkedExampleJson(const WorkedExample& example) {
  const compute::KvLayout& layout = example.layout;
  return {{"head_dim", layout.head_dim},
          {"k_type", GetKvDtype(layout.k_dtype).name},
          {"v_type", GetKvDtype(layout.v_dtype).name},
          {"block_tokens", kBlockTokens},
          {"block_bytes", layout.block_bytes()},
          {"token_bytes", layout.token_bytes()},
          {"prefill", StepJson(example, example.prefill)},
          {"decode", StepJson(example, example.decode)},
          {"uncached_outputs", MatrixJson(example.recomputed.outputs)},
          {"pool_bytes_after", PoolJson(example.pool_after)}};
}

}  // namespace kvern::cli
