// The spellings of the enums of kvern/engine.h, as in logs, metrics and JSON.
#include <string_view>

#include "kvern/engine.h"

namespace kvern {

std::string_view ToString(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kDeadline:
      return "deadline";
    case FinishReason::kFailed:
      return "failed";
  }
  return {};
}

std::string_view ToString(LifecycleEvent::Kind kind) {
  using Kind = LifecycleEvent::Kind;
  switch (kind) {
    case Kind::kQueued:
      return "queued";
    case Kind::kWaiting:
      return "waiting";
    case Kind::kLoading:
      return "loading";
    case Kind::kAdmitted:
      return "admitted";
    case Kind::kPrefill:
      return "prefill";
    case Kind::kFirstToken:
      return "first_token";
    case Kind::kForked:
      return "forked";
    case Kind::kPreempted:
      return "preempted";
    case Kind::kResumed:
      return "resumed";
    case Kind::kPaused:
      return "paused";
    case Kind::kUnpaused:
      return "unpaused";
    case Kind::kSelfCheck:
      return "self_check";
    case Kind::kFinished:
      return "finished";
    case Kind::kFailed:
      return "failed";
  }
  return {};
}

std::string_view ToString(WaitCause cause) {
  switch (cause) {
    case WaitCause::kTurn:
      return "turn";
    case WaitCause::kMemory:
      return "memory";
    case WaitCause::kShare:
      return "share";
    case WaitCause::kPrefix:
      return "prefix";
    case WaitCause::kTier:
      return "tier";
    case WaitCause::kReader:
      return "reader";
  }
  return {};
}

}  // namespace kvern
