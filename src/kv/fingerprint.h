// Fingerprint: everything that decides what the bytes of a block mean, as named fields (K12).
//
// Blocks may be used where the fingerprints are equal, and nowhere else. The library knows no
// model, so the engine names the fields: digests of weights and tokenizer, the configuration in
// force after all overrides (RoPE, window, epsilon, softcap), the adapter and its scale, dtypes and
// scale scheme of K and V, layers, heads, block and chunk tokens, lane layout, and GroupField() for
// each group. What does not change a bit (instruction set, threads) stays out.
//
// A fingerprint is kept as canonical bytes: the same fields in any order give the same bytes.
// docs/record-format.md has the format. Immutable, so any thread may read one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kv/digest.h"
#include "kvern/kv_store.h"
#include "kvern/result.h"

namespace kvern::kv {

// The field that every fingerprint has: the version of the numerics (N12).
inline constexpr std::string_view kNumericsField = "numerics_version";

class Fingerprint {
 public:
  // Errors: kInvalidArgument for a bad name, a name that occurs twice, or more than 64 KiB.
  static Result<Fingerprint> Make(uint32_t numerics_version, std::vector<FingerprintField> fields);

  std::span<const std::byte> bytes() const { return bytes_; }  // canonical
  const Digest& digest() const { return digest_; }             // of bytes()

 private:
  explicit Fingerprint(std::vector<std::byte> bytes);

  std::vector<std::byte> bytes_;
  Digest digest_;
};

// What the blocks of one group are, as a field "group.<id>". Without max_rollback: it changes how
// long blocks are kept, not what is in them.
FingerprintField GroupField(GroupId group, const GroupSpec& spec);

// For bytes from outside: whether they are what Make() could have written.
bool IsCanonicalFingerprint(std::span<const std::byte> bytes);

struct FieldDifference {
  std::string field;    // its name
  std::string message;  // both values, for people
};

// The first field, in order of names, in which they differ. REQUIRES: `found` is canonical.
std::optional<FieldDifference> FindDifference(std::span<const std::byte> found,
                                              const Fingerprint& expected);

}  // namespace kvern::kv
