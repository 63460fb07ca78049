// Server: the engine behind HTTP. `kvern serve` is this with flags.
//
// It listens before the model is loaded, and says so (/health, 503).
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "server/context.h"
#include "server/http/http_server.h"

namespace kvern::server {

struct ServeOptions {
  HttpAddress address;
  HttpLimits limits;
  ServerOptions server;
};

class Server {
 public:
  // Errors: HttpServer::Listen()'s.
  static Result<std::unique_ptr<Server>> Listen(const ServeOptions& options,
                                                std::unique_ptr<KeyRing> keys, const Clock& clock);
  ~Server();

  // Serves it from now on. It must outlive the server.
  Status SetServing(const Serving& serving);

  // Keys and certificate from their files. Errors: the first; what was is in force then.
  Status Reload();

  // Takes no new requests and returns when those that are served have ended and their clients have
  // read what they got.
  void Drain();
  void CutOff();  // cancels what is served; any thread

  ServerLog& log() { return context_.log; }
  std::string url() const;
  HttpCounters counters() const;

 private:
  Server(const ServeOptions& options, std::unique_ptr<KeyRing> keys, const Clock& clock);
  HttpCallbacks MakeCallbacks();

  std::unique_ptr<HttpServer> http_;  // destroyed last: sinks speak to it
  ServerContext context_;
};

}  // namespace kvern::server
