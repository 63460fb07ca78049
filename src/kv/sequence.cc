// Sequence: room for a step, its rows, and what is published when they are final.
#include <algorithm>

#include "base/result.h"
#include "kv/kv_cache_impl.h"

namespace kvern::kv {

BlockCounts Sequence::Impl::NotPromised(const BlockCounts& wanted) const {
  BlockCounts more = {};
  for (size_t i = 0; i < tables.size(); ++i) {
    const size_t before =
        std::visit([](const auto& table) { return table.num_promised(); }, tables[i]);
    more[i] = wanted[i] - std::min(wanted[i], before);
  }
  return more;
}

Status Sequence::Impl::Promise(const BlockCounts& wanted) {
  const BlockCounts more = NotPromised(wanted);
  KVERN_RETURN_IF_ERROR(cache->MakeRoom(ns, more));
  const auto promise = [&](size_t group, size_t num_blocks) {
    return std::visit([&](auto& table) { return table.Promise(num_blocks); }, tables[group]);
  };
  for (size_t i = 0; i < tables.size(); ++i) {
    Status status = promise(i, wanted[i]);
    if (status.ok()) continue;
    // The system refused memory: back to the promises of before.
    for (size_t j = 0; j < i; ++j) {
      if (more[j] > 0) CHECK(promise(j, wanted[j] - more[j]).ok());
    }
    return status;
  }
  return {};
}

BlockCounts Sequence::Impl::BlocksNeeded(size_t num_tokens) const {
  BlockCounts wanted = {};
  for (size_t i = 0; i < tables.size(); ++i) {
    wanted[i] =
        std::visit([&](const auto& table) { return table.BlocksNeeded(num_tokens); }, tables[i]);
  }
  return wanted;
}

Status Sequence::Impl::Reserve(size_t num_tokens) { return Promise(BlocksNeeded(num_tokens)); }

Status Sequence::Impl::Append(std::span<const TokenId> tokens) {
  const bool is_simple = tables.size() == 1 && blocks(0).ExtendInPlace(tokens.size());
  if (!is_simple) KVERN_RETURN_IF_ERROR(Extend(tokens.size()));
  if (producer && !cache->in_flight.Agrees(*producer, length, tokens)) EndProduction();
  if (publish) unpublished.insert(unpublished.end(), tokens.begin(), tokens.end());
  length += tokens.size();
  return {};
}

// All tables, or none.
Status Sequence::Impl::Extend(size_t num_tokens) {
  const auto has_room = [&](const auto& table) {
    return table.BlocksNeeded(num_tokens) <= table.num_promised();
  };
  for (const Table& table : tables) {
    if (std::visit(has_room, table)) continue;
    KVERN_RETURN_IF_ERROR(Reserve(num_tokens));
    break;
  }
  for (Table& table : tables) {
    if (auto* const states = std::get_if<StateTable>(&table)) {
      states->Extend(num_tokens);
      continue;
    }
    auto& blocks = std::get<BlockTable>(table);
    const size_t num_rows_copied = blocks.num_rows_copied();
    CHECK(blocks.Extend(num_tokens).ok());
    cache->counters.rows_copied.Add(blocks.num_rows_copied() - num_rows_copied);
  }
  return {};
}

void Sequence::Impl::EndProduction() {
  if (!producer) return;
  const WriterLock lock(cache->mutex);
  cache->in_flight.Withdraw(*std::exchange(producer, std::nullopt));
}

void Sequence::Impl::Commit(size_t new_length) {
  CHECK(committed <= new_length && new_length <= length);
  committed = new_length;
  for (Table& table : tables) {
    std::visit([&](auto& rows) { rows.Commit(new_length); }, table);
  }
  if (publish && committed >= published + cache->block_tokens) PublishBlocks();
  if (tables.size() > 1) Slide();
}

// ---- Publication

void Sequence::Impl::PublishBlocks() {
  const size_t block_tokens = cache->block_tokens;
  {
    const WriterLock lock(cache->mutex);
    publish = cache->prefixes.IsFindable(node);
    while (publish && published + block_tokens <= committed) {
      const size_t first = published / block_tokens;
      const size_t num_blocks = committed / block_tokens - first;
      const auto tokens = std::span(unpublished).first(num_blocks * block_tokens);
      const std::vector<BlockSlot> slots = SlotsOf(first, num_blocks);
      std::vector<RecordKey> keys;
      if (cache->tier_io != nullptr) keys = cache->KeysAfter(*node, ns, tokens);
      const PrefixCache::Published result = cache->prefixes.Publish({.at = node,
                                                                     .tokens = tokens,
                                                                     .slots = slots,
                                                                     .keys = keys,
                                                                     .retention = retention,
                                                                     .ttl_us = ttl_us});
      if (result.existing) {
        Merge(result);
        continue;
      }
      node = result.node;
      for (size_t i = 0; i < tables.size(); ++i) {
        if (cache->group(i).kind != GroupKind::kFull) continue;
        for (size_t b = first; b < first + num_blocks; ++b) {
          blocks(i).Borrow(b, blocks(i).blocks()[b]);
        }
      }
      published += num_blocks * block_tokens;
      unpublished.erase(unpublished.begin(),
                        unpublished.begin() + static_cast<ptrdiff_t>(num_blocks * block_tokens));
      cache->StoreBlocks(*node, node->num_blocks() - num_blocks, num_blocks);
    }
    if (producer && publish) cache->in_flight.Advance(*producer, published);
  }
  if (!publish) EndProduction();
}

std::vector<BlockSlot> Sequence::Impl::SlotsOf(size_t first_block, size_t num_blocks) const {
  const size_t num_groups = tables.size();
  std::vector<BlockSlot> slots(num_blocks * num_groups);
  for (size_t b = 0; b < num_blocks; ++b) {
    for (size_t i = 0; i < num_groups; ++i) {
      const size_t block = first_block + b;
      BlockSlot& slot = slots[b * num_groups + i];
      if (const auto* const states = std::get_if<StateTable>(&tables[i])) {
        const auto state = states->At((block + 1) * cache->block_tokens);
        if (state) slot = BlockSlot(*state);
      } else if (block >= blocks(i).first_held()) {
        slot = BlockSlot(blocks(i).blocks()[block]);
      }
    }
  }
  return slots;
}

// The tree has blocks of the same tokens already: takes them in place of its own, if they are the
// same in every byte.
void Sequence::Impl::Merge(const PrefixCache::Published& found) {
  const size_t block_tokens = cache->block_tokens;
  node = found.node;
  for (size_t b = 0; b < found.num_blocks; ++b) {
    if (!MergeBlock(found, b)) {
      node = cache->WithdrawDiffering(node, published / block_tokens);
      publish = false;
      unpublished.clear();
      return;
    }
    published += block_tokens;
    unpublished.erase(unpublished.begin(),
                      unpublished.begin() + static_cast<ptrdiff_t>(block_tokens));
  }
}

bool Sequence::Impl::MergeBlock(const PrefixCache::Published& found, size_t index) {
  const size_t num_groups = tables.size();
  const size_t block = published / cache->block_tokens;
  const std::vector<BlockSlot> own = SlotsOf(block, 1);
  if (!cache->HaveSameBytes(found.slots.subspan(index * num_groups, num_groups), own)) return false;
  for (size_t i = 0; i < num_groups; ++i) {
    const BlockSlot theirs = found.slots[index * num_groups + i];
    if (cache->group(i).kind == GroupKind::kFull) {
      blocks(i).Borrow(block, *theirs);
      cache->pool.Release(*own[i]);
    } else if (!theirs && own[i]) {
      cache->prefixes.FillSlot(found.node, index, static_cast<GroupId>(i), *own[i]);
    } else if (theirs && own[i] && *theirs != *own[i]) {
      cache->pool.Retain(*theirs);
      if (auto* const states = std::get_if<StateTable>(&tables[i])) {
        states->Replace((block + 1) * cache->block_tokens, *theirs);
      } else {
        blocks(i).Replace(block, *theirs);
      }
    }
  }
  return true;
}

void Sequence::Impl::Slide() {
  for (size_t i = 0; i < tables.size(); ++i) {
    const GroupSpec& spec = cache->group(i);
    if (spec.kind != GroupKind::kWindow) continue;
    size_t first_query = committed - std::min<size_t>(committed, spec.max_rollback);
    if (producer) {
      // A waiter that was told to go on joins here, and has not looked up its window yet.
      first_query = std::min(first_query, cache->in_flight.FirstJoin(*producer).value_or(SIZE_MAX));
    }
    blocks(i).Slide(first_query + 1 - std::min<size_t>(first_query + 1, spec.window));
  }
}

// ---- Going back and ending

Status Sequence::Impl::Truncate(size_t new_length) {
  CHECK(new_length <= length);
  for (size_t i = 0; i < tables.size(); ++i) {
    if (std::visit([&](const auto& t) { return t.CanTruncate(new_length); }, tables[i])) continue;
    return Errorf(ErrorCode::kInvalidArgument,
                  "Sequence::Truncate: group {} no longer has what length {} of {} needs (its "
                  "max_rollback is {}): release the sequence and look its text up again",
                  i, new_length, length, cache->group(i).max_rollback);
  }
  if (new_length < committed) EndProduction();
  const size_t block_tokens = cache->block_tokens;
  std::vector<TokenId> cut;  // of a published block that the sequence keeps in part
  if (new_length < published) {
    const WriterLock lock(cache->mutex);
    const Node* const at = cache->prefixes.NodeWith(node, new_length / block_tokens);
    if (publish && new_length % block_tokens > 0) {
      const size_t begin = new_length / block_tokens * block_tokens - at->position;
      const auto tokens = std::span(at->tokens).subspan(begin, new_length % block_tokens);
      cut.assign(tokens.begin(), tokens.end());
    }
  }
  for (Table& table : tables) {
    std::visit([&](auto& rows) { rows.Truncate(new_length); }, table);
  }
  if (new_length < published) {
    const WriterLock lock(cache->mutex);
    node = cache->prefixes.MovePin(node, new_length / block_tokens);
    published = new_length / block_tokens * block_tokens;
    unpublished = std::move(cut);
  } else if (publish) {
    unpublished.resize(new_length - published);
  }
  length = new_length;
  committed = std::min(committed, new_length);
  return {};
}

void Sequence::Impl::Release() {
  EndProduction();
  const WriterLock lock(cache->mutex);
  PublishTail();
  for (Table& table : tables) {
    std::visit([](auto& rows) { rows.Release(); }, table);
  }
  cache->prefixes.Unpin(node);
}

// The committed rows after the last whole block can be copied from, by whoever goes on from there.
void Sequence::Impl::PublishTail() {
  if (!publish || committed <= published || !cache->prefixes.IsRowIndependent()) return;
  if (!cache->prefixes.IsFindable(node)) return;
  const size_t block = published / cache->block_tokens;
  std::vector<BlockSlot> slots(tables.size());
  for (size_t i = 0; i < tables.size(); ++i) {
    std::optional<BlockId> id;
    if (const auto* const states = std::get_if<StateTable>(&tables[i])) {
      id = states->At(committed);
    } else if (block >= blocks(i).first_held()) {
      id = blocks(i).blocks()[block];
    }
    // One that is published is in the tree already: the sequence went back into it. One that a fork
    // holds too is left to it, who may write on if nobody else needs these rows.
    const bool is_new = id && cache->pool.is_writable(*id);
    if (!is_new && cache->group(i).kind == GroupKind::kFull) return;
    if (is_new) slots[i] = BlockSlot(*id);
  }
  cache->prefixes.PublishTail({.at = node,
                               .tokens = std::span(unpublished).first(committed - published),
                               .slots = slots,
                               .keys = {},
                               .retention = retention,
                               .ttl_us = ttl_us});
}

}  // namespace kvern::kv
