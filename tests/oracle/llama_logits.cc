// Writes llama.cpp's logits for given token ids. llama_logits.py compiles it, against a llama.cpp
// build that the caller names; no other target does.
//
//   llama_logits MODEL IDS OUT FIRST KV FLASH THREADS
//
// IDS has one sequence of token ids per line, each run alone from position 0 in one batch. OUT
// receives raw f32 rows [vocab] for positions FIRST … of every line, in order. KV is f32, f16 or
// bf16; FLASH on, off or auto. Runs on the CPU; everything else is llama.cpp's default.

#include <llama.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "llama_logits: %s\n", message.c_str());
  std::exit(1);
}

std::vector<std::vector<llama_token>> ReadSequences(const char* path) {
  std::ifstream file(path);
  if (!file) Fail(std::string(path) + ": cannot be read");
  std::vector<std::vector<llama_token>> sequences;
  for (std::string line; std::getline(file, line);) {
    std::istringstream ids(line);
    std::vector<llama_token> sequence;
    for (llama_token id; ids >> id;) sequence.push_back(id);
    if (!sequence.empty()) sequences.push_back(sequence);
  }
  if (sequences.empty()) Fail(std::string(path) + ": holds no token ids");
  return sequences;
}

template <typename T>
T Lookup(const std::map<std::string, T>& choices, const std::string& name) {
  const auto found = choices.find(name);
  if (found == choices.end()) Fail(name + ": not a known choice");
  return found->second;
}

void LogErrors(ggml_log_level level, const char* text, void*) {
  if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

llama_context_params ContextParams(std::size_t longest, char** argv) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(longest);
  params.n_batch = static_cast<uint32_t>(longest);
  params.type_k = params.type_v = Lookup<ggml_type>(
      {{"f32", GGML_TYPE_F32}, {"f16", GGML_TYPE_F16}, {"bf16", GGML_TYPE_BF16}}, argv[5]);
  params.flash_attn_type = Lookup<llama_flash_attn_type>({{"on", LLAMA_FLASH_ATTN_TYPE_ENABLED},
                                                          {"off", LLAMA_FLASH_ATTN_TYPE_DISABLED},
                                                          {"auto", LLAMA_FLASH_ATTN_TYPE_AUTO}},
                                                         argv[6]);
  params.n_threads = params.n_threads_batch = std::atoi(argv[7]);
  return params;
}

void WriteLogits(llama_context* context, const std::vector<llama_token>& tokens, int32_t first,
                 std::size_t vocab, std::ofstream& out) {
  const auto count = static_cast<int32_t>(tokens.size());
  llama_memory_clear(llama_get_memory(context), true);
  llama_batch batch = llama_batch_init(count, 0, 1);
  batch.n_tokens = count;
  for (int32_t i = 0; i < count; ++i) {
    batch.token[i] = tokens[static_cast<std::size_t>(i)];
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = i >= first;
  }
  if (llama_decode(context, batch) != 0) Fail("llama_decode failed");
  for (int32_t i = first; i < count; ++i) {
    out.write(reinterpret_cast<const char*>(llama_get_logits_ith(context, i)),
              static_cast<std::streamsize>(vocab * sizeof(float)));
  }
  llama_batch_free(batch);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) Fail("usage: llama_logits MODEL IDS OUT FIRST KV FLASH THREADS");
  llama_log_set(LogErrors, nullptr);
  llama_backend_init();

  const auto sequences = ReadSequences(argv[2]);
  std::size_t longest = 0;
  for (const auto& sequence : sequences) longest = std::max(longest, sequence.size());

  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (model == nullptr) Fail(std::string(argv[1]) + ": llama.cpp cannot load it");
  llama_context* context = llama_init_from_model(model, ContextParams(longest, argv));
  if (context == nullptr) Fail("llama.cpp cannot make a context");

  const auto vocab = static_cast<std::size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
  std::ofstream out(argv[3], std::ios::binary);
  for (const auto& sequence : sequences)
    WriteLogits(context, sequence, std::atoi(argv[4]), vocab, out);
  out.close();
  if (!out) Fail(std::string(argv[3]) + ": cannot be written");

  llama_free(context);
  llama_model_free(model);
  llama_backend_free();
}
