// RequestTrace: what the log says of one request, once it is over. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "kvern/engine.h"
#include "server/log.h"

namespace kvern::server {

class RequestTrace {
 public:
  // What it is given must outlive it.
  RequestTrace(ServerLog& log, const Clock& clock, std::string method, std::string path,
               std::string id);
  ~RequestTrace();  // writes the line
  RequestTrace(const RequestTrace&) = delete;
  RequestTrace& operator=(const RequestTrace&) = delete;

  void SetStatus(int status) { status_ = status; }
  void SetTenant(const std::string& tenant) { tenant_ = tenant; }
  void SetAnswer(const Report& report, std::optional<FinishReason> finish);
  // It is asked for again and again: only failures are told.
  void SetQuiet() { is_quiet_ = true; }

 private:
  ServerLog& log_;
  const Clock& clock_;
  const std::string method_, path_, id_;
  const int64_t begin_us_;
  std::string tenant_;
  int status_ = 0;  // of the reply; 0: the client went before
  bool is_quiet_ = false;
  std::vector<LogField> answer_;
};

}  // namespace kvern::server
