// GhostKeys: the keys of what was evicted last, oldest forgotten first.
//
// A ring of keys and a hash index into it: 16 bytes a key, up to 32 just after it has grown. A key
// that is taken leaves its place in the ring empty until its turn to be forgotten comes.
//
// One thread. All methods are O(1), expected and amortised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace kvern::kv {

class GhostKeys {
 public:
  GhostKeys() : GhostKeys(kMinPlaces) {}

  // Remembers `key`, the newest of at most `max_keys` (≥ 1). One that is remembered already keeps
  // its age.
  void Insert(uint64_t key, size_t max_keys);

  // Whether `key` was remembered; it no longer is.
  bool Take(uint64_t key);

 private:
  static constexpr size_t kMinPlaces = 16;
  static constexpr uint32_t kEmpty = UINT32_MAX;

  // `num_places` is a power of two.
  explicit GhostKeys(size_t num_places) : ring_(num_places), index_(2 * num_places, kEmpty) {}

  uint32_t Place(uint64_t turn) const { return static_cast<uint32_t>(turn & (ring_.size() - 1)); }
  size_t Home(uint64_t key) const;
  std::optional<size_t> Find(uint64_t key) const;  // its slot of the index
  void Link(uint32_t place);
  void Unlink(size_t slot);
  void ForgetOldest();
  void Grow();

  std::vector<uint64_t> ring_;
  std::vector<uint32_t> index_;  // places in the ring; linear probing, at most half full
  uint64_t begin_ = 0;           // turns, of which Place() gives the place
  uint64_t end_ = 0;
};

}  // namespace kvern::kv
