// kvern run: answers one prompt, or talks.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/mapped_file.h"
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/input_text.h"
#include "cli/json_output.h"
#include "cli/line_source.h"
#include "cli/reply_writer.h"
#include "cli/sampling_flags.h"
#include "cli/trace.h"
#include "text/chat_prompt.h"

namespace kvern::cli {
namespace {

struct RunFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  InputText input;
  int64_t max_new_tokens = -1;
  std::string system_prompt;
  std::string template_name;
  std::string template_file;
  bool conversation = false;
  bool raw = false;
  bool trace = false;
  bool json = false;
};

// The template that the flags name, else the model's own, else none.
Result<std::optional<text::ChatTemplate>> ReadTemplate(const RunFlags& flags,
                                                       const engine::OpenedModel& model) {
  std::string source;
  if (!flags.template_file.empty()) {
    KVERN_ASSIGN_OR_RETURN(source, ReadTextFile(flags.template_file));
  } else if (!flags.template_name.empty()) {
    const auto builtin = text::FindBuiltinTemplate(flags.template_name);
    if (!builtin) {
      std::string names;
      for (const auto& row : text::BuiltinTemplates()) names.append(" ").append(row.name);
      return Errorf(ErrorCode::kInvalidArgument, "--chat-template: unknown name '{}': use one of{}",
                    flags.template_name, names);
    }
    source = *builtin;
  } else {
    KVERN_ASSIGN_OR_RETURN(const auto own, model.gguf().FindString("tokenizer.chat_template"));
    if (!own) return std::optional<text::ChatTemplate>();
    source = *own;
  }
  KVERN_ASSIGN_OR_RETURN(auto chat_template, text::MakeChatTemplate(model.tokenizer(), source));
  return std::optional(std::move(chat_template));
}

// Everything that answers: the model, how to sample, how to make a prompt of a conversation.
class Session final : public ChatBackend {
 public:
  Session(const RunFlags& flags, engine::OpenedModel* model, std::unique_ptr<ReplyWriter> writer,
          SamplingParams params, std::optional<text::ChatTemplate> chat_template)
      : flags_(flags),
        model_(*model),
        params_(std::move(params)),
        template_(std::move(chat_template)),
        writer_(std::move(writer)) {}

  bool has_template() const { return template_.has_value(); }

  Result<std::vector<TokenId>> EncodeTurns(std::span<const ChatTurn> turns) const {
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();
    for (const ChatTurn& turn : turns) {
      messages.push_back({{"role", turn.role}, {"content", turn.content}});
    }
    return text::EncodeChat(model_.tokenizer(), *template_,
                            {.messages = messages, .now = text::CurrentLocalTime()});
  }

  Result<WrittenReply> Write(std::vector<TokenId> prompt, uint32_t answer_index,
                             const TextSink& on_text, const std::atomic<bool>& stop) {
    ReplyRequest request = {.prompt = std::move(prompt), .sampling = params_, .max_new_tokens = {}};
    // Another answer to the same turns is drawn anew.
    request.sampling.seed += answer_index;
    if (flags_.max_new_tokens >= 0) {
      request.max_new_tokens = static_cast<size_t>(flags_.max_new_tokens);
    }
    return writer_->Write(std::move(request), on_text, stop);
  }

  Result<ChatReply> Reply(const ChatRequest& request) override {
    KVERN_ASSIGN_OR_RETURN(auto prompt, EncodeTurns(request.turns));
    KVERN_ASSIGN_OR_RETURN(WrittenReply written, Write(std::move(prompt), request.answer_index,
                                                       request.on_text, *request.stop));
    return std::move(written.reply);
  }

  const SamplingParams& params() const { return params_; }
  const engine::OpenedModel& model() const { return model_; }

 private:
  const RunFlags& flags_;
  engine::OpenedModel& model_;
  const SamplingParams params_;
  const std::optional<text::ChatTemplate> template_;
  const std::unique_ptr<ReplyWriter> writer_;
};

void PrintText(std::string_view text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

nlohmann::ordered_json LogprobsJson(const text::Tokenizer& tokenizer,
                                    const std::vector<SampledToken>& tokens) {
  const auto entry = [&](TokenId id, float logprob) {
    return nlohmann::ordered_json{{"id", static_cast<uint32_t>(id)},
                                  {"token", tokenizer.TokenText(id, /*render_special=*/true)},
                                  {"logprob", logprob}};
  };
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const SampledToken& token : tokens) {
    nlohmann::ordered_json row = entry(token.id, token.logprob);
    row["top_logprobs"] = nlohmann::ordered_json::array();
    for (const TokenLogprob& top : token.top) {
      row["top_logprobs"].push_back(entry(top.id, top.logprob));
    }
    list.push_back(std::move(row));
  }
  return list;
}

void PrintReplyJson(const Session& session, const WrittenReply& written) {
  const ReplyStats& stats = written.reply.stats;
  nlohmann::ordered_json ids = nlohmann::ordered_json::array();
  for (const SampledToken& token : written.tokens) ids.push_back(static_cast<uint32_t>(token.id));
  nlohmann::ordered_json step_ms = nlohmann::ordered_json::array();
  for (const double seconds : written.step_seconds) step_ms.push_back(seconds * 1e3);
  nlohmann::ordered_json document = {
      {"text", written.reply.text},
      {"tokens", ids},
      {"finish_reason", ToString(written.reply.finish)},
      {"seed", session.params().seed},
      {"usage",
       {{"prompt_tokens", stats.prompt_tokens},
        {"cached_tokens", stats.cached_tokens},
        {"completion_tokens", stats.reply_tokens}}},
      {"timings",
       {{"prefill_ms", stats.prefill_seconds * 1e3},
        {"prefill_per_second", stats.prefill_rate()},
        {"decode_ms", stats.decode_seconds * 1e3},
        {"decode_per_second", stats.decode_rate()},
        {"step_ms", step_ms}}},
      {"kv_bytes", stats.kv_bytes},
      {"kv_bytes_per_token", session.model().layout().token_bytes()}};
  if (session.params().num_logprobs > 0) {
    document["logprobs"] = LogprobsJson(session.model().tokenizer(), written.tokens);
  }
  if (!written.receipt.empty()) {
    document["receipt"] = nlohmann::ordered_json::parse(written.receipt);
  }
  PrintJson(document);
}

Result<std::vector<TokenId>> EncodePrompt(const RunFlags& flags, const Session& session,
                                          const std::string& prompt) {
  if (flags.raw || !session.has_template()) {
    return session.model().tokenizer().Encode(prompt, {.add_special = true});
  }
  std::vector<ChatTurn> turns;
  if (!flags.system_prompt.empty()) turns.push_back({"system", flags.system_prompt});
  turns.push_back({"user", prompt});
  return session.EncodeTurns(turns);
}

Status RunOnce(const RunFlags& flags, Session& session) {
  KVERN_ASSIGN_OR_RETURN(const std::string prompt, ReadInputText(flags.input));
  KVERN_ASSIGN_OR_RETURN(auto tokens, EncodePrompt(flags, session, prompt));
  const ScopedInterrupts interrupts;
  // Streamed, unless something else has the terminal.
  const bool streams = !flags.json && !flags.trace;
  const TextSink sink = streams ? TextSink(PrintText) : TextSink([](std::string_view) {});
  KVERN_ASSIGN_OR_RETURN(const WrittenReply written,
                         session.Write(std::move(tokens), 0, sink, ScopedInterrupts::requested()));
  if (flags.json) {
    PrintReplyJson(session, written);
    return {};
  }
  fmt::print("{}\n", streams ? "" : written.reply.text);
  std::fflush(stdout);
  fmt::print(stderr, "[{}]\n", FormatStats(written.reply.stats));
  return {};
}

Status RunChat(const RunFlags& flags, Session& session) {
  if (!session.has_template()) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "{}: has no chat template: name one with --chat-template, or give a prompt (-p)",
                  session.model().gguf().path());
  }
  fmt::print("{}, context {}. /help lists commands, Ctrl-C stops a reply, /exit leaves.\n",
             session.model().config().name, session.model().context());
  const ScopedInterrupts interrupts;
  TerminalLines lines("> ");
  Chat chat(session, lines,
            {.system_prompt = flags.system_prompt,
             .out = PrintText,
             .interrupt = &ScopedInterrupts::requested()});
  chat.Run();
  return {};
}

// On the engine, unless another strategy is wanted, or a look at what one does.
Result<std::unique_ptr<ReplyWriter>> MakeWriter(const RunFlags& flags, engine::OpenedModel* model,
                                                const kv::Strategy& strategy) {
  if (strategy.name == EngineFlags().strategy && !flags.trace) return MakeEngineWriter(model);
  engine::GenerationOptions options = model->MakeGenerationOptions(strategy);
  if (flags.trace) {
    TraceTo(options, [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  }
  return MakeStrategyWriter(model, std::move(options));
}

Status Run(const RunFlags& flags) {
  if (flags.max_new_tokens < -1) {
    return Errorf(ErrorCode::kInvalidArgument, "-n: {} is neither a number of tokens nor -1",
                  flags.max_new_tokens);
  }
  const bool is_chat = flags.conversation || (!IsGiven(flags.input) && isatty(STDIN_FILENO) != 0);
  if (is_chat && (flags.raw || flags.json || IsGiven(flags.input))) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "a conversation takes none of -p, -f, --json and -no-cnv: drop them, or give a "
                  "prompt for one reply");
  }
  KVERN_ASSIGN_OR_RETURN(const kv::Strategy* strategy, StrategyFromFlags(flags.engine));
  KVERN_ASSIGN_OR_RETURN(engine::OpenedModel model, OpenFromFlags(flags.engine));
  for (const std::string& note : KvDtypeNotes(flags.engine)) fmt::print(stderr, "{}\n", note);
  KVERN_ASSIGN_OR_RETURN(SamplingParams params,
                         ParamsFromFlags(flags.sampling, model.config().vocab_size));
  KVERN_ASSIGN_OR_RETURN(auto chat_template, ReadTemplate(flags, model));
  KVERN_ASSIGN_OR_RETURN(auto writer, MakeWriter(flags, &model, *strategy));
  Session session(flags, &model, std::move(writer), std::move(params), std::move(chat_template));
  return is_chat ? RunChat(flags, session) : RunOnce(flags, session);
}

}  // namespace

Action DeclareRun(CLI::App& app) {
  const auto flags = std::make_shared<RunFlags>();
  AddEngineFlags(app, flags->engine);
  app.add_option("-p,--prompt", flags->input.prompt, "Answer this, and end (default: talk)");
  app.add_option("-f,--file", flags->input.file, "The same from a file; - is standard input");
  app.add_option("-n,--predict", flags->max_new_tokens,
                 "Tokens of a reply at most; -1 is until it ends or the context is full")
      ->capture_default_str();
  app.add_option("--system-prompt", flags->system_prompt, "System prompt (short: -sys)");
  app.add_option("--chat-template", flags->template_name,
                 "Name of a built-in template (default: the model's own)");
  app.add_option("--chat-template-file", flags->template_file, "File with a Jinja template");
  app.add_flag("--conversation", flags->conversation,
               "Talk even where standard input is no terminal (short: -cnv)");
  app.add_flag("--no-conversation", flags->raw,
               "Continue the prompt as plain text, without a chat template (short: -no-cnv)");
  app.add_flag("--trace", flags->trace, "Print what happens to the KV cache, with bytes");
  app.add_flag("--json", flags->json, "Print one JSON document at the end");
  AddSamplingFlags(app, flags->sampling);
  return [flags] { return Run(*flags); };
}

}  // namespace kvern::cli
