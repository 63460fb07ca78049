// kvern serve: the engine behind HTTP, until a signal ends it.
#include <fmt/core.h>
#include <malloc.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/thread_name.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "engine/service.h"
#include "kvern/engine.h"
#include "server/server.h"

namespace kvern::cli {
namespace {

struct ServerFlags {
  EngineFlags engine;
  std::optional<size_t> kv_tokens;
  SchedulerOptions scheduler;
  SpeculationOptions speculation;
  server::ServeOptions serve;
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

void Log(const std::string& line) {
  fmt::print(stderr, "kvern: {}\n", line);
  std::fflush(stderr);
}

bool IsLocal(const std::string& host) {
  return host.starts_with('/') || host == "localhost" || host == "127.0.0.1" || host == "::1";
}

// Errors: kInvalidArgument names the flag.
Status CheckFlags(ServerFlags& flags) {
  server::HttpAddress& address = flags.serve.address;
  if (!flags.unix_socket.empty()) address.host = flags.unix_socket;
  if (flags.tls.certificate.empty() != flags.tls.key.empty()) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "--ssl-key-file and --ssl-cert-file: give both or none");
  }
  if (!flags.tls.key.empty()) address.tls = flags.tls;
  const bool has_keys = !flags.keys.empty() || !flags.key_file.empty();
  if (!IsLocal(address.host) && !has_keys && !flags.is_insecure) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "--host: {} is open to other machines: give --api-key or --api-key-file, or "
                  "--insecure if everybody may use it",
                  address.host);
  }
  return {};
}

Result<EngineOptions> EngineOptionsOf(const ServerFlags& flags) {
  EngineOptions options{.scheduler = flags.scheduler, .speculation = flags.speculation};
  KVERN_RETURN_IF_ERROR(SetEngineOptions(flags.engine, options));
  options.model.kv_tokens = flags.kv_tokens;
  return options;
}

server::Serving ServingOf(Engine& engine, const ServerFlags& flags) {
  server::Serving serving{.engine = &engine,
                          .tokenizer = EngineAccess::TokenizerOf(engine),
                          .template_source = EngineAccess::TemplateSourceOf(engine),
                          .name = flags.serve.server.alias};
  std::optional<text::ChatTemplate> chat_template;
  if (const auto& own = EngineAccess::ChatTemplateOf(engine); own.ok()) {
    serving.chat_template = &*own;
    chat_template = *own;
  }
  serving.text = server::MakeModelText(*serving.tokenizer, std::move(chat_template));
  serving.info = {
      .text = serving.text.get(), .context = engine.context(), .fingerprint = engine.fingerprint()};
  if (serving.name.empty()) serving.name = engine.model_name();
  serving.loaded_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
  serving.max_running = flags.scheduler.max_running;
  return serving;
}

// Until it is told to stop. The first signal lets requests end, the second does not.
void WaitForTheEnd(server::Server& server, ServeEvents& events) {
  std::thread drain;
  while (true) {
    switch (events.Pop()) {
      case ServeEvent::kReload: {
        const Status status = server.Reload();
        Log(status.ok() ? "keys and certificates were read again"
                        : status.error().message + ": the old ones stay in use");
        break;
      }
      case ServeEvent::kStop:
        if (drain.joinable()) {
          server.CutOff();
          break;
        }
        Log("stopping when requests have ended; a second signal cuts them off");
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
  Result<std::unique_ptr<Engine>> engine = Errorf(ErrorCode::kIo, "not loaded");
  server::Serving serving;
  KVERN_ASSIGN_OR_RETURN(const auto server,
                         server::Server::Listen(flags.serve, std::move(keys), clock));
  Log(fmt::format("{}: loading {}", server->url(), options.model.path));
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
  serving = ServingOf(**engine, flags);
  server->SetServing(serving);
  Log(fmt::format("{}: serving {}", server->url(), serving.name));
  NotifySystemd("READY=1");
  WaitForTheEnd(*server, events);
  return {};
}

void AddNetworkFlags(CLI::App& app, ServerFlags& flags) {
  server::HttpAddress& address = flags.serve.address;
  address.host = "127.0.0.1";
  address.port = 8080;
  app.add_option("--host", address.host, "Address to listen on")
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
  app.add_option("--parallel", scheduler.max_running, "Sequences that are computed at once")
      ->capture_default_str()
      ->envname("LLAMA_ARG_N_PARALLEL");
  app.add_option("--max-waiting", scheduler.max_waiting, "Requests that wait; beyond it 503")
      ->capture_default_str();
  app.add_option("--policy", scheduler.policy, "Who is next: fcfs, priority, lpm")
      ->capture_default_str();
  SpeculationOptions& speculation = flags->speculation;
  app.add_option("--speculation", speculation.proposer, "Who drafts tokens: none, ngram, draft")
      ->capture_default_str();
  app.add_option("--model-draft", speculation.draft_model,
                 "Model file that drafts, for --speculation draft (short: -md)");
  server::ServerOptions& options = flags->serve.server;
  app.add_option("-a,--alias", options.alias, "What clients call the model")
      ->envname("LLAMA_ARG_ALIAS");
  app.add_flag("--strict-model", options.is_model_strict, "Refuse requests for other models");
  app.add_option("--share-prefixes", options.share_group,
                 "A name for all tenants, whose prompts then share the cache");
  AddNetworkFlags(app, *flags);
  AddLimitFlags(app, flags->serve.limits);
  return [flags] { return Serve(*flags); };
}

}  // namespace kvern::cli
