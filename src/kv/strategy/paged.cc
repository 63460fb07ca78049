// paged: a BlockTable over the pool. Grows a block at a time, copies nothing, can share.
#include "kv/block_table.h"
#include "kv/strategy/ledger.h"

namespace kvern::kv {
namespace {

class PagedCache final : public SequenceCache {
 public:
  PagedCache(CacheOptions options, BlockTable table)
      : ledger_(std::move(options)), table_(std::move(table)) {
    AccountSince(0);
  }
  ~PagedCache() override { Shrink(0); }

  Status Extend(size_t num_tokens) override {
    KVERN_RETURN_IF_ERROR(ledger_.CheckContext(table_.length(), num_tokens));
    const size_t num_blocks = table_.blocks().size();
    const size_t num_rows_copied = table_.num_rows_copied();
    KVERN_RETURN_IF_ERROR(table_.Extend(num_tokens));
    const size_t num_rows = table_.num_rows_copied() - num_rows_copied;
    if (num_rows > 0) ledger_.Copied(CacheEvent::Kind::kCopyOnWrite, num_rows);
    AccountSince(num_blocks);
    return {};
  }

  void Truncate(size_t length) override { Shrink(length); }

  Result<std::unique_ptr<SequenceCache>> Fork() override {
    return std::unique_ptr<SequenceCache>(
        std::make_unique<PagedCache>(ledger_.options(), table_.Fork()));
  }

  PagedView View() const override { return table_.View(); }
  size_t length() const override { return table_.length(); }
  CacheUsage usage() const override { return ledger_.Usage(table_.length()); }

 private:
  // The blocks that the table has beyond its first `num_blocks`.
  void AccountSince(size_t num_blocks) {
    const size_t num_new = table_.blocks().size() - num_blocks;
    if (num_new > 0) ledger_.Allocated(num_new * ledger_.block_bytes(), num_new);
  }

  void Shrink(size_t length) {
    const size_t num_blocks = table_.blocks().size();
    table_.Truncate(length);
    const size_t num_freed = num_blocks - table_.blocks().size();
    if (num_freed > 0) ledger_.Freed(num_freed * ledger_.block_bytes(), num_freed);
  }

  Ledger ledger_;
  BlockTable table_;
};

}  // namespace

std::unique_ptr<SequenceCache> MakePagedCache(CacheOptions options) {
  BlockTable table(options.pool, options.group);
  return std::make_unique<PagedCache>(std::move(options), std::move(table));
}

}  // namespace kvern::kv
