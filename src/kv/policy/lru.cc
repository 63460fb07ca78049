// lru: the least recently used first.
#include <cstdint>
#include <memory>
#include <optional>

#include "kv/policy.h"
#include "kv/policy/item_heap.h"

namespace kvern::kv {
namespace {

class LruPolicy : public EvictionPolicy {
 public:
  void Add(const EvictionCandidate& candidate) override {
    order_.Insert(
        {.last_used_us = candidate.last_used_us, .serial = next_serial_++, .item = candidate.item});
  }

  void Remove(uint32_t item) override { order_.Erase(item); }

  std::optional<uint32_t> Victim() override {
    if (order_.empty()) return std::nullopt;
    return order_.least().item;
  }

  void Evict(uint32_t item) override { order_.Erase(item); }

 private:
  struct Entry {
    int64_t last_used_us;
    uint32_t serial;
    uint32_t item;

    bool operator<(const Entry& other) const {
      if (last_used_us != other.last_used_us) return last_used_us < other.last_used_us;
      return WasAddedBefore(serial, other.serial);
    }
  };
  static_assert(sizeof(Entry) == 16);

  uint32_t next_serial_ = 0;
  ItemHeap<Entry> order_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeLruPolicy() { return std::make_unique<LruPolicy>(); }

}  // namespace kvern::kv
