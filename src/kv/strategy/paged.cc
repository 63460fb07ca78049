// paged: a sequence of the KV library. Grows a block at a time and shares what others have
// computed.
#include <optional>
#include <utility>
#include <vector>

#include "kv/strategy/ledger.h"

namespace kvern::kv {
namespace {

class PagedCache final : public SequenceCache {
 public:
  PagedCache(CacheOptions options, std::optional<Sequence> sequence)
      : ledger_(std::move(options)), sequence_(std::move(sequence)) {
    Account(0);
  }
  ~PagedCache() override { End(); }

  Result<size_t> Begin(std::span<const TokenId> tokens, size_t max_kept) override {
    const size_t num_blocks = View().num_blocks;
    sequence_.reset();  // first, so that the new text finds the rows of this one
    Prompt prompt;
    prompt.ns = ledger_.options().ns;
    prompt.tokens = tokens;
    prompt.max_hit = max_kept;
    const Result<size_t> num_copied = Admit(prompt, {});
    Account(num_blocks);
    if (!num_copied.ok()) return num_copied.error();
    if (*num_copied > 0) ledger_.Copied(CacheEvent::Kind::kCopyOnWrite, *num_copied);
    return length();
  }

  Status Extend(std::span<const TokenId> tokens) override {
    CHECK(sequence_.has_value());
    KVERN_RETURN_IF_ERROR(ledger_.CheckContext(length(), tokens.size()));
    const PagedView before = View();
    const size_t num_rows = length() % ledger_.block_tokens();
    const std::byte* const open = num_rows > 0 ? before.blocks[before.num_blocks - 1] : nullptr;
    KVERN_RETURN_IF_ERROR(sequence_->Append(tokens));
    if (open != nullptr && View().blocks[before.num_blocks - 1] != open) {
      ledger_.Copied(CacheEvent::Kind::kCopyOnWrite, num_rows);
    }
    Account(before.num_blocks);
    return {};
  }

  Status Extend(size_t num_tokens) override {
    KVERN_RETURN_IF_ERROR(ledger_.CheckContext(length(), num_tokens));
    const std::vector<TokenId> untold(num_tokens);
    if (!sequence_) {
      const TokenId token{};
      Prompt prompt;
      prompt.ns = ledger_.options().ns;
      prompt.tokens = {&token, 1};
      prompt.use_cache = false;
      AdmitOptions options;
      options.publish = false;
      const Result<size_t> num_copied = Admit(prompt, options);
      if (!num_copied.ok()) return num_copied.error();
    }
    return Extend(untold);
  }

  void Commit() override {
    if (sequence_) sequence_->Commit(length());
  }

  void Truncate(size_t length) override {
    CHECK(length <= this->length());
    if (!sequence_) return;
    const size_t num_blocks = View().num_blocks;
    CHECK(sequence_->Truncate(length).ok());
    Account(num_blocks);
  }

  Result<std::unique_ptr<SequenceCache>> Fork() override {
    std::optional<Sequence> sequence;
    if (sequence_) sequence = sequence_->Fork();
    return std::unique_ptr<SequenceCache>(
        std::make_unique<PagedCache>(ledger_.options(), std::move(sequence)));
  }

  PagedView View() const override {
    return sequence_ ? sequence_->View(ledger_.options().group) : PagedView();
  }
  size_t length() const override { return sequence_ ? sequence_->length() : 0; }
  CacheUsage usage() const override { return ledger_.Usage(length()); }

 private:
  // Returns the rows that were copied.
  Result<size_t> Admit(const Prompt& prompt, const AdmitOptions& options) {
    KvCache& cache = *ledger_.options().cache;
    Lease lease = cache.Lookup(prompt);
    const size_t num_shared = lease.num_ram_tokens();
    KVERN_ASSIGN_OR_RETURN(sequence_, cache.Admit(lease, options));
    return length() - num_shared;  // less than the lease had, if there was no room for a copy
  }

  void End() {
    const size_t num_blocks = View().num_blocks;
    sequence_.reset();
    Account(num_blocks);
  }

  // What came or went since there were `num_blocks`.
  void Account(size_t num_blocks) {
    const size_t now = View().num_blocks;
    if (now > num_blocks) {
      ledger_.Allocated((now - num_blocks) * ledger_.block_bytes(), now - num_blocks);
    } else if (now < num_blocks) {
      ledger_.Freed((num_blocks - now) * ledger_.block_bytes(), num_blocks - now);
    }
  }

  Ledger ledger_;
  std::optional<Sequence> sequence_;  // none before a text
};

}  // namespace

std::unique_ptr<SequenceCache> MakePagedCache(CacheOptions options) {
  return std::make_unique<PagedCache>(std::move(options), std::nullopt);
}

}  // namespace kvern::kv
