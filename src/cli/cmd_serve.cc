// kvern serve: the engine behind HTTP, until a signal ends it.
#include <fmt/core.h>
#include <malloc.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/thread_name.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/llama_server_flags.h"
#include "compute/isa.h"
#include "engine/service.h"
#include "kvern/engine.h"
#include "server/server.h"
#include "text/chat_prompt.h"

namespace kvern::cli {
namespace {

constexpr size_t kDefaultContexts = 4;  // that the KV cache has room for

struct ServerFlags {
  EngineFlags engine;
  std::optional<size_t> kv_tokens;
  double span_share = ModelOptions().span_share;
  SchedulerOptions scheduler;
  std::optional<size_t> parallel;
  SpeculationOptions speculation;
  server::ServeOptions serve;
  LlamaServerFlags llama;
  std::string unix_socket;
  server::TlsFiles tls;
  std::vector<std::string> keys;
  std::string key_file;
  bool is_insecure = false;
};

// What the command waits for.
enum class ServeEvent { kReload, kStop, kLoaded, kDrained };

class ServeEvents {
 public:
  void Push(ServeEvent event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
    }
    has_event_.notify_one();
  }

  ServeEvent Pop() {
    std::unique_lock lock(mutex_);
    has_event_.wait(lock, [this] { return !events_.empty(); });
    const ServeEvent event = events_.front();
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable has_event_;
  std::deque<ServeEvent> events_;
};

// Blocks the signals in this thread and those that it starts, and waits for them in one of its own.
class SignalWaiter {
 public:
  explicit SignalWaiter(ServeEvents& events) {
    sigemptyset(&signals_);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    thread_ = std::thread([this, &events] {
      NameThisThread("kvern-signals");
      int signal = 0;
      while (sigwait(&signals_, &signal) == 0 && signal != SIGUSR1) {
        events.Push(signal == SIGHUP ? ServeEvent::kReload : ServeEvent::kStop);
      }
    });
  }

  ~SignalWaiter() {
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }

 private:
  sigset_t signals_;
  std::thread thread_;
};

// systemd's readiness protocol (sd_notify(3)): a datagram to the socket that it names.
void NotifySystemd(std::string_view state) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path == nullptr || std::strlen(path) >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, path, std::strlen(path));
  const size_t length = offsetof(sockaddr_un, sun_path) + std::strlen(path);
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // abstract
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return;
  (void)::sendto(socket, state.data(), state.size(), MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length));
  ::close(socket);
}

bool IsLocalHost(const std::string& host) {
  return host.starts_with('/') || host == "localhost" || host == "127.0.0.1" || host == "::1";
}

bool IsLocal(const server::HttpAddress& address) {
  return std::ranges::all_of(server::HostsOf(address), IsLocalHost);
}

// Errors: kInvalidArgument names the flag.
Status CheckFlags(ServerFlags& flags) {
  KVERN_RETURN_IF_ERROR(CheckLlamaServerFlags(flags.llama));
  server::HttpAddress& address = flags.serve.address;
  if (!flags.unix_socket.empty()) address.host = flags.unix_socket;
  if (flags.tls.certificate.empty() != flags.tls.key.empty()) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "--ssl-key-file and --ssl-cert-file: give both or none");
  }
  if (!flags.tls.key.empty()) address.tls = flags.tls;
  const bool has_keys = !flags.keys.empty() || !flags.key_file.empty();
  if (!IsLocal(address) && !has_keys && !flags.is_insecure) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "--host: {} is open to other machines: give --api-key or --api-key-file, or "
                  "--insecure if everybody may use it",
                  address.host);
  }
  return {};
}

Result<EngineOptions> EngineOptionsOf(ServerFlags& flags) {
  EngineOptions options{.scheduler = flags.scheduler, .speculation = flags.speculation};
  KVERN_RETURN_IF_ERROR(SetEngineOptions(flags.engine, options));
  options.model.kv_tokens = flags.kv_tokens;
  options.model.span_share = flags.span_share;
  if (!flags.parallel) return options;
  options.scheduler.max_running = *flags.parallel;
  const uint32_t all = options.model.context.value_or(0);
  if (all == 0 || flags.llama.is_kv_unified) return options;
  // As llama-server does: the sequences divide the context that was asked for.
  const size_t share = all / std::max<size_t>(1, *flags.parallel);
  if (share == 0) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "--ctx-size: {} tokens are not enough for --parallel {}: each sequence gets its "
                  "share, or all with --kv-unified",
                  all, *flags.parallel);
  }
  flags.llama.notes.push_back(
      fmt::format("each of {} sequences has {} of the {} tokens of --ctx-size; --kv-unified: all",
                  *flags.parallel, share, all));
  options.model.context = static_cast<uint32_t>(share);
  if (!flags.kv_tokens && *flags.parallel > kDefaultContexts) options.model.kv_tokens = all;
  return options;
}

// Errors: what the template is wrong in.
Result<std::optional<text::ChatTemplate>> MakeNamedTemplate(
    const Engine& engine, const std::optional<NamedTemplate>& named) {
  if (!named) return std::optional<text::ChatTemplate>();
  const text::Tokenizer& tokenizer = *EngineAccess::TokenizerOf(engine);
  if (named->is_builtin && !tokenizer.adds_bos()) {
    const auto eos = tokenizer.eos();
    KVERN_ASSIGN_OR_RETURN(
        auto made,
        text::ChatTemplate::Create(named->source, "", eos ? tokenizer.TokenText(*eos, true) : ""));
    return std::optional(std::move(made));
  }
  KVERN_ASSIGN_OR_RETURN(auto made, text::MakeChatTemplate(tokenizer, named->source));
  return std::optional(std::move(made));
}

// `named` is a template instead of the model's own, with its source, or null.
server::Serving ServingOf(Engine& engine, const EngineOptions& options, const ServerFlags& flags,
                          const text::ChatTemplate* named, const std::string& named_source) {
  server::Serving serving{.engine = &engine, .tokenizer = EngineAccess::TokenizerOf(engine)};
  serving.template_source =
      named != nullptr ? named_source : EngineAccess::TemplateSourceOf(engine);
  serving.chat_template = named;
  std::optional<text::ChatTemplate> chat_template;
  if (const auto& own = EngineAccess::ChatTemplateOf(engine); named == nullptr && own.ok()) {
    serving.chat_template = &*own;
  }
  if (serving.chat_template != nullptr) chat_template = *serving.chat_template;
  serving.text = server::MakeModelText(*serving.tokenizer, std::move(chat_template));
  serving.info = {.text = serving.text.get(),
                  .context = engine.context(),
                  .fingerprint = engine.fingerprint(),
                  .defaults = flags.llama.defaults};
  const auto& aliases = flags.serve.server.aliases;
  serving.name = aliases.empty() ? engine.model_name() : aliases.front();
  serving.loaded_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
  serving.options = options;
  auto& model = serving.options.model;  // as they turned out
  if (model.num_threads == 0) model.num_threads = std::thread::hardware_concurrency();
  if (const auto isa = compute::SelectIsa(model.isa); isa.ok()) model.isa = (*isa)->name;
  return serving;
}

// Until it is told to stop. The first signal lets requests end, the second does not.
void WaitForTheEnd(server::Server& server, ServeEvents& events) {
  std::thread drain;
  while (true) {
    switch (events.Pop()) {
      case ServeEvent::kReload: {
        const Status status = server.Reload();
        server.log().Say(status.ok() ? "keys and certificates were read again"
                                     : status.error().message + ": the old ones stay in use");
        break;
      }
      case ServeEvent::kStop:
        if (drain.joinable()) {
          server.CutOff();
          break;
        }
        server.log().Say("stopping when requests have ended; a second signal cuts them off");
        NotifySystemd("STOPPING=1");
        drain = std::thread([&] {
          server.Drain();
          events.Push(ServeEvent::kDrained);
        });
        break;
      case ServeEvent::kDrained:
        drain.join();
        return;
      case ServeEvent::kLoaded:
        break;
    }
  }
}

// Long bodies go back to the system when they have been read. Otherwise glibc takes the longest so
// far as the least that does, and what each thread once held stays.
constexpr int kLongAllocation = 1 << 20;

Status Serve(ServerFlags& flags) {
  ::mallopt(M_MMAP_THRESHOLD, kLongAllocation);
  KVERN_RETURN_IF_ERROR(CheckFlags(flags));
  KVERN_ASSIGN_OR_RETURN(const EngineOptions options, EngineOptionsOf(flags));
  KVERN_ASSIGN_OR_RETURN(auto keys, server::KeyRing::Make(flags.keys, flags.key_file));
  const SteadyClock clock;
  ServeEvents events;
  const SignalWaiter signals(events);
  KVERN_ASSIGN_OR_RETURN(const auto named, ReadNamedTemplate(flags.llama));
  Result<std::unique_ptr<Engine>> engine = Errorf(ErrorCode::kIo, "not loaded");
  std::optional<text::ChatTemplate> named_template;
  server::Serving serving;
  KVERN_ASSIGN_OR_RETURN(const auto server,
                         server::Server::Listen(flags.serve, std::move(keys), clock));
  for (const std::string& note : KvDtypeNotes(flags.engine)) server->log().Say(note);
  for (const std::string& note : flags.llama.notes) server->log().Say(note);
  server->log().Say(fmt::format("{}: loading {}", server->url(), options.model.path));
  std::thread loader([&] {
    engine = Engine::Open(options);
    events.Push(ServeEvent::kLoaded);
  });
  bool is_stopped = false;
  for (ServeEvent event = events.Pop(); event != ServeEvent::kLoaded; event = events.Pop()) {
    is_stopped = is_stopped || event == ServeEvent::kStop;
  }
  loader.join();
  KVERN_RETURN_IF_ERROR(engine.ok() ? Status() : Status(engine.error()));
  if (is_stopped) return {};
  KVERN_ASSIGN_OR_RETURN(named_template, MakeNamedTemplate(**engine, named));
  serving = ServingOf(**engine, options, flags, named_template ? &*named_template : nullptr,
                      named ? named->source : "");
  serving.file_name = std::filesystem::path(options.model.path).filename().string();
  KVERN_RETURN_IF_ERROR(server->SetServing(serving));
  server->log().Say(fmt::format("{}: serving {}", server->url(), serving.name));
  NotifySystemd("READY=1");
  WaitForTheEnd(*server, events);
  return {};
}

void AddNetworkFlags(CLI::App& app, ServerFlags& flags) {
  server::HttpAddress& address = flags.serve.address;
  address.host = "127.0.0.1";
  address.port = 8080;
  app.add_option("--host", address.host, "Address to listen on; several are separated by commas")
      ->capture_default_str()
      ->envname("LLAMA_ARG_HOST");
  app.add_option("--port", address.port, "Port; 0 is any that is free")
      ->capture_default_str()
      ->envname("LLAMA_ARG_PORT");
  app.add_option("--unix-socket", flags.unix_socket, "Path of a socket to listen on instead");
  app.add_option("--ssl-key-file", flags.tls.key, "Private key, PEM")
      ->envname("LLAMA_ARG_SSL_KEY_FILE");
  app.add_option("--ssl-cert-file", flags.tls.certificate, "Certificate chain, PEM")
      ->envname("LLAMA_ARG_SSL_CERT_FILE");
  app.add_option("--api-key", flags.keys, "Keys that may do everything, separated by commas")
      ->delimiter(',')
      ->envname("LLAMA_API_KEY");
  app.add_option("--api-key-file", flags.key_file, "File of keys (docs/serving.md)")
      ->envname("LLAMA_ARG_API_KEY_FILE");
  app.add_flag("--insecure", flags.is_insecure, "Listen to other machines without keys");
  server::OriginRules& origins = flags.serve.server.origins;
  app.add_option("--cors-origins", origins.origins, "Origins of web pages that may use it")
      ->delimiter(',');
  app.add_option("--allowed-hosts", origins.hosts, "Names that it is reached by")->delimiter(',');
}

void AddLimitFlags(CLI::App& app, server::HttpLimits& limits) {
  app.add_option("--max-header-bytes", limits.header_bytes, "Of a request's headers")
      ->capture_default_str();
  app.add_option("--max-body-bytes", limits.body_bytes, "Of a request")->capture_default_str();
  app.add_option("--max-bodies-bytes", limits.all_bodies_bytes, "Of all requests at once")
      ->capture_default_str();
  app.add_option("--max-connections", limits.connections, "At once")->capture_default_str();
  app.add_option("--max-queued-bytes", limits.queued_bytes, "That a client is behind its stream")
      ->capture_default_str();
  const auto add_seconds = [&app](const char* name, int64_t& timeout_us, const char* help) {
    app.add_option_function<double>(
        name, [&timeout_us](double seconds) { timeout_us = std::llround(seconds * 1e6); },
        fmt::format("{} (default: {} s)", help, timeout_us / 1'000'000));
  };
  add_seconds("--header-timeout", limits.header_timeout_us, "Seconds for a request's headers");
  add_seconds("--body-timeout", limits.body_timeout_us, "Seconds without a byte of a body");
  add_seconds("--idle-timeout", limits.idle_timeout_us, "Seconds between requests");
  add_seconds("--write-timeout", limits.write_timeout_us,
              "Seconds in which a client reads nothing");
}

}  // namespace

Action DeclareServe(CLI::App& app) {
  const auto flags = std::make_shared<ServerFlags>();
  app.add_option("-m,--model", flags->engine.model, "Model file (default: the fetched model)")
      ->envname("LLAMA_ARG_MODEL");
  app.add_option("-c,--ctx-size", flags->engine.context,
                 "Context in tokens; 0 is what the model was trained on (default: 4096, or that "
                 "if it is less)")
      ->envname("LLAMA_ARG_CTX_SIZE");
  app.add_option("-t,--threads", flags->engine.threads, "Threads (default: one per core)")
      ->envname("LLAMA_ARG_THREADS");
  AddComputeFlags(app, flags->engine);
  app.add_option("--kv-tokens", flags->kv_tokens,
                 "Tokens that the KV cache has room for (default: four contexts)");
  SchedulerOptions& scheduler = flags->scheduler;
  app.add_option("--max-running", scheduler.max_running, "Sequences that are computed at once")
      ->capture_default_str();
  app.add_option("--parallel", flags->parallel,
                 "The same, but they divide --ctx-size, as llama-server's do")
      ->envname("LLAMA_ARG_N_PARALLEL");
  app.add_option("--max-waiting", scheduler.max_waiting, "Requests that wait; beyond it 503")
      ->capture_default_str();
  app.add_option("--span-share", flags->span_share,
                 "Share of the KV memory that marked prompts of one tenant may keep")
      ->capture_default_str();
  app.add_option("--policy", scheduler.policy, "Who is next: fcfs, priority, lpm")
      ->capture_default_str();
  SpeculationOptions& speculation = flags->speculation;
  app.add_option("--speculation", speculation.proposer, "Who drafts tokens: none, ngram, draft")
      ->capture_default_str();
  app.add_option("--model-draft", speculation.draft_model,
                 "Model file that drafts, for --speculation draft (short: -md)");
  server::ServerOptions& options = flags->serve.server;
  app.add_option_function<std::vector<std::string>>(
         "-a,--alias",
         [&options](std::vector<std::string> names) {
           // The first in the alphabet is the one in replies, as in llama-server.
           std::ranges::sort(names);
           options.aliases = std::move(names);
         },
         "What clients call the model; several are separated by commas")
      ->delimiter(',')
      ->envname("LLAMA_ARG_ALIAS");
  app.add_flag("--strict-model", options.is_model_strict, "Refuse requests for other models");
  app.add_option("--share-prefixes", options.share_group,
                 "A name for all tenants, whose prompts then share the cache");
  app.add_flag("--log-json", options.has_json_log, "Log lines are JSON objects");
  app.add_option_function<double>(
      "--log-interval",
      [&options](double seconds) {
        constexpr double kPeriod = double{server::History::kPeriodUs} / 1e6;
        options.log_points = seconds <= 0 ? 0 : std::max<size_t>(1, std::lround(seconds / kPeriod));
      },
      "Seconds that a line sums up, while there is work; 0: no such lines (default: 60)");
  AddLlamaServerFlags(app, flags->llama, options);
  AddNetworkFlags(app, *flags);
  AddLimitFlags(app, flags->serve.limits);
  return [flags] { return Serve(*flags); };
}

}  // namespace kvern::cli
