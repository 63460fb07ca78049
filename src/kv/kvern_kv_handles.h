// Handles of the C API, and how its functions check and report. For kvern_kv.cc (operations) and
// kvern_kv_report.cc (cached text and reports).
//
// A handle outlives what it names: after kvern_kv_admit() the lease's handle is left, empty, until
// the caller frees it. So a call with it is an error and no access to freed memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kv/kvern_kv_convert.h"
#include "kvern/kv.h"
#include "kvern/kvern_kv.h"

// The names are those that kvern_kv.h declares.
// NOLINTBEGIN(readability-identifier-naming)

struct kvern_kv_cache {
  std::unique_ptr<kvern::kv::BlockStore> store;
  std::unique_ptr<kvern::kv::Tier> tier;
  std::unique_ptr<kvern::kv::KvCache> cache;
  std::atomic<uint32_t> num_namespaces{0};  // any thread checks ids
  size_t num_handles = 0;
  int64_t now_us = 0;
  std::vector<kvern::kv::Event> events;  // taken from the cache, and not yet by the caller
};

namespace kvern::kv {

class CountedHandle {
 public:
  explicit CountedHandle(kvern_kv_cache* owner) : owner_(owner) { ++owner->num_handles; }
  ~CountedHandle() { --owner_->num_handles; }
  CountedHandle(const CountedHandle&) = delete;
  CountedHandle& operator=(const CountedHandle&) = delete;

  kvern_kv_cache* owner() const { return owner_; }

 private:
  kvern_kv_cache* const owner_;
};

}  // namespace kvern::kv

struct kvern_kv_lease : kvern::kv::CountedHandle {
  using CountedHandle::CountedHandle;

  std::vector<kvern::TokenId> tokens;     // what `lease` looks at
  std::optional<kvern::kv::Lease> lease;  // none once it has ended
  std::vector<uint8_t> block_states;      // what the last kvern_kv_poll() pointed out
  std::string failure;
};

struct kvern_kv_waiter : kvern::kv::CountedHandle {
  using CountedHandle::CountedHandle;

  std::vector<kvern::TokenId> tokens;
  std::optional<kvern::kv::Waiter> waiter;  // none once it has ended
};

struct kvern_kv_sequence : kvern::kv::CountedHandle {
  using CountedHandle::CountedHandle;

  std::optional<kvern::kv::Sequence> sequence;  // always, for the caller
};

struct kvern_kv_explanation {
  kvern::kv::Explanation explanation;
  std::string text;
};

// NOLINTEND(readability-identifier-naming)

namespace kvern::kv {

// Remembers the message for kvern_kv_last_error(), and returns the status.
kvern_kv_status Fail(const char* function, kvern_kv_status status, const char* message) noexcept;

// Runs `body`, which returns a Status, and lets nothing but a status out.
template <typename Body>
kvern_kv_status Call(const char* function, const Body& body) noexcept {
  try {
    const Status status = body();
    if (status.ok()) return KVERN_KV_OK;
    return Fail(function, StatusOf(status.error().code), status.error().message.c_str());
  } catch (const std::bad_alloc&) {
    return Fail(function, KVERN_KV_INTERNAL, "the system refused memory for tables");
  } catch (const std::exception& exception) {
    return Fail(function, KVERN_KV_INTERNAL, exception.what());
  } catch (...) {
    return Fail(function, KVERN_KV_INTERNAL, "an exception of unknown type");
  }
}

Status CheckNotNull(const void* pointer, const char* name);
Status CheckNamespace(const kvern_kv_cache* cache, uint32_t ns);

}  // namespace kvern::kv
