// KvCache: blocks that come from and go to a tier, a file or another process, as records (K4, K12).
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/result.h"
#include "kv/kv_cache_impl.h"

namespace kvern::kv {

RecordKey KvCache::Impl::KeyAt(const Node& node) const {
  return node.is_root() ? RecordKey{} : node.keys.back();
}

std::vector<RecordKey> KvCache::Impl::KeysAfter(const Node& node, NamespaceId ns,
                                                std::span<const TokenId> tokens) const {
  const Namespace& name_space = *namespaces[static_cast<size_t>(ns)];
  std::vector<RecordKey> keys;
  RecordKey key = KeyAt(node);
  for (; !tokens.empty(); tokens = tokens.subspan(block_tokens)) {
    key = RecordKeyOf(key, name_space.fingerprint.digest(), name_space.hash,
                      tokens.first(block_tokens));
    keys.push_back(key);
  }
  return keys;
}

RecordIdentity KvCache::Impl::IdentityOf(NamespaceId ns, GroupId id, const RecordKey& parent,
                                         size_t position, std::span<const TokenId> tokens) const {
  const Namespace& name_space = *namespaces[static_cast<size_t>(ns)];
  return {.fingerprint = name_space.fingerprint,
          .name_space = name_space.hash,
          .layout = RecordLayout::Of(id, group(Index(id))),
          .parent = parent,
          .first_position = position,
          .tokens = tokens};
}

bool KvCache::Impl::HaveSameBytes(std::span<const BlockSlot> theirs,
                                  std::span<const BlockSlot> own) {
  bool is_duplicate = false;
  for (size_t i = 0; i < num_groups(); ++i) {
    if (!theirs[i] || !own[i] || *theirs[i] == *own[i]) continue;
    is_duplicate = true;
    if (!store->Equal(pool.Address(*theirs[i]), pool.Address(*own[i]), group(i).block_bytes)) {
      return false;
    }
  }
  counters.blocks_merged.Add(is_duplicate);
  return true;
}

// Nobody can tell which of two different answers is the right one, so neither is found any more.
Node* KvCache::Impl::WithdrawDiffering(Node* node, size_t num_blocks) {
  counters.one_answer_violations.Add(1);
  Node* const agreed = prefixes.MovePin(node, num_blocks);
  prefixes.Withdraw(node, 0);
  return agreed;
}

// ---- To the tier

void KvCache::Impl::StoreBlocks(const Node& node, size_t first_block, size_t num_blocks) {
  if (tier_io == nullptr) return;
  const auto ns = static_cast<NamespaceId>(node.root);
  for (size_t block = first_block; block < first_block + num_blocks; ++block) {
    const auto tokens = std::span(node.tokens).subspan(block * block_tokens, block_tokens);
    const RecordKey parent = block > 0 ? node.keys[block - 1] : KeyAt(*node.parent);
    for (size_t i = 0; i < num_groups(); ++i) {
      const BlockSlot slot = node.slots[block * num_groups() + i];
      const auto id = static_cast<GroupId>(i);
      const TierKey address = RecordAddressOf(node.keys[block], id);
      if (!slot || options.tier->Contains(address)) continue;
      const RecordIdentity identity =
          IdentityOf(ns, id, parent, node.position + block * block_tokens, tokens);
      const size_t header_bytes = RecordHeaderBytes(identity);
      tier_io->TryStore(address, header_bytes + group(i).block_bytes,
                        [&](std::span<std::byte> record) {
                          const auto payload = record.subspan(header_bytes);
                          store->Read(payload, pool.Address(*slot));
                          const auto header = EncodeRecordHeader(identity, payload, mac_key());
                          std::memcpy(record.data(), header.data(), header.size());
                        });
    }
  }
}

// ---- From the tier

void KvCache::Impl::FindOnTier(Lease::Impl& lease) {
  lease.tier_keys.clear();
  if (tier_io == nullptr || !lease.tier_failure.empty()) return;
  std::vector<size_t> num_window_blocks(num_groups());
  for (size_t i = 0; i < num_groups(); ++i) num_window_blocks[i] = lease.windows[i].size();
  lease.tier_keys =
      KeysOnTier(lease.prompt, lease.num_blocks, KeyAt(*lease.node), std::move(num_window_blocks));
}

std::vector<RecordKey> KvCache::Impl::KeysOnTier(const Prompt& prompt, size_t num_blocks,
                                                 RecordKey parent,
                                                 std::vector<size_t> num_window_blocks) const {
  const Namespace& name_space = *namespaces[static_cast<size_t>(prompt.ns)];
  const size_t end = std::min(prompt.tokens.size(), prompt.max_hit) / block_tokens;
  std::vector<RecordKey> keys;
  size_t num_usable = 0;
  for (size_t block = num_blocks; block < end; ++block) {
    const auto tokens = prompt.tokens.subspan(block * block_tokens, block_tokens);
    parent = RecordKeyOf(parent, name_space.fingerprint.digest(), name_space.hash, tokens);
    bool has_full = true, has_all = true;
    for (size_t i = 0; i < num_groups(); ++i) {
      const GroupSpec& spec = group(i);
      const bool is_there =
          options.tier->Contains(RecordAddressOf(parent, static_cast<GroupId>(i)));
      size_t& run = num_window_blocks[i];
      run = is_there ? run + 1 : 0;
      if (spec.kind == GroupKind::kFull) {
        has_full &= is_there;
      } else if (spec.kind == GroupKind::kState) {
        has_all &= is_there;
      } else {
        const size_t needed = std::min<size_t>((block + 1) * block_tokens, spec.window - 1);
        has_all &= run * block_tokens >= needed;
      }
    }
    if (!has_full) break;
    keys.push_back(parent);
    if (has_all) num_usable = keys.size();
  }
  keys.resize(num_usable);
  return keys;
}

// What FindOnTier() would find, for Explain(). Without the windows that RAM holds, so that a hybrid
// prompt may be told of less than it gets.
size_t KvCache::Impl::NumOnTier(NamespaceId ns, std::span<const TokenId> tokens,
                                const Prefix& prefix) const {
  if (tier_io == nullptr) return 0;
  const Namespace& name_space = *namespaces[static_cast<size_t>(ns)];
  RecordKey parent;
  for (size_t block = 0; block < prefix.num_blocks; ++block) {
    parent = RecordKeyOf(parent, name_space.fingerprint.digest(), name_space.hash,
                         tokens.subspan(block * block_tokens, block_tokens));
  }
  const Prompt prompt{.ns = ns, .tokens = tokens};
  return KeysOnTier(prompt, prefix.num_blocks, parent, std::vector<size_t>(num_groups())).size() *
         block_tokens;
}

bool KvCache::Impl::IsNeeded(const Lease::Impl& lease, size_t block, size_t index) const {
  const GroupSpec& spec = group(index);
  if (spec.kind == GroupKind::kFull) return true;
  const size_t num_after = lease.tier_keys.size() - 1 - block;
  if (spec.kind == GroupKind::kState) return num_after == 0;
  return num_after * block_tokens + 1 < spec.window;
}

Status KvCache::StartLoad(Lease& lease) { return impl_->StartLoad(*lease.impl_); }

Status KvCache::Impl::StartLoad(Lease::Impl& lease) {
  if (lease.tier_keys.empty() || !lease.loads.empty()) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "KvCache::StartLoad: the lease has {}: see num_tier_tokens()",
                  lease.loads.empty() ? "nothing on a tier" : "a load under way");
  }
  BlockCounts needed = {};
  std::vector<BlockLoad> loads;
  for (size_t block = 0; block < lease.tier_keys.size(); ++block) {
    for (size_t i = 0; i < num_groups(); ++i) {
      if (!IsNeeded(lease, block, i)) continue;
      ++needed[i];
      loads.push_back({.block = block, .group = static_cast<GroupId>(i), .id = {}, .loaded = {}});
    }
  }
  KVERN_RETURN_IF_ERROR(MakeRoom(lease.prompt.ns, needed));
  std::vector<BlockPromise> promises;
  for (size_t i = 0; i < num_groups(); ++i) {
    promises.emplace_back(&pool, static_cast<GroupId>(i), OwnerOf(lease.prompt.ns));
    KVERN_RETURN_IF_ERROR(promises.back().Set(needed[i]));
  }
  const WriterLock lock(mutex);
  lease.promises = std::move(promises);
  lease.loads = std::move(loads);
  for (size_t i = 0; i < lease.loads.size(); ++i) {
    BlockLoad& load = lease.loads[i];
    load.id = tier_io->StartLoad(RecordAddressOf(lease.tier_keys[load.block], load.group));
    loading[static_cast<uint64_t>(*load.id)] = {&lease, i};
  }
  counters.loads_started.Add(1);
  // Others wait for this load instead of starting their own.
  if (!lease.provisional) {
    lease.provisional = in_flight.AnnounceProvisional(lease.prompt.ns, lease.prompt.tokens,
                                                      lease.num_blocks * block_tokens);
  }
  return {};
}

void KvCache::PollTier() {
  const WriterLock lock(impl_->mutex);
  impl_->PollTier();
}

void KvCache::Impl::PollTier() {
  if (tier_io == nullptr) return;
  for (const LoadId id : tier_io->Poll()) {
    const auto entry = loading.find(static_cast<uint64_t>(id));
    CHECK(entry != loading.end());
    const auto [lease, index] = entry->second;
    FinishLoad(*lease, lease->loads[index]);
  }
}

void KvCache::Impl::FinishLoad(Lease::Impl& lease, BlockLoad& load) {
  const LoadId id = *std::exchange(load.id, std::nullopt);
  const auto bytes = tier_io->Loaded(id);
  CHECK(bytes.has_value());
  const RecordKey parent = load.block == 0 ? KeyAt(*lease.node) : lease.tier_keys[load.block - 1];
  const size_t position = (lease.num_blocks + load.block) * block_tokens;
  const auto tokens = lease.prompt.tokens.subspan(position, block_tokens);
  const RecordIdentity identity = IdentityOf(lease.prompt.ns, load.group, parent, position, tokens);
  Result<BlockId> block = bytes->ok() ? Unpack(identity, **bytes, lease.promises[Index(load.group)])
                                      : Result<BlockId>(bytes->error());
  if (block.ok()) {
    load.state = LoadState::kLoaded;
    load.loaded = *block;
    counters.blocks_loaded.Add(1);
  } else {
    load.state = LoadState::kFailed;
    load.failure = block.error().message;
    counters.blocks_failed.Add(1);
    if (bytes->ok()) {
      options.tier->Remove(RecordAddressOf(lease.tier_keys[load.block], load.group));
    }
  }
  tier_io->Finish(id);
  loading.erase(static_cast<uint64_t>(id));
}

Error KvCache::Impl::Refused(const RecordError& error) {
  counters.records_refused[static_cast<size_t>(error.refusal)].Add(1);
  return Errorf(ErrorCode::kCorrupt, "record refused ({}): {}", ToString(error.refusal),
                error.message);
}

Result<BlockId> KvCache::Impl::Unpack(const RecordIdentity& identity,
                                      std::span<const std::byte> record, BlockPromise& promise) {
  const auto decoded = DecodeRecord(record, identity, mac_key());
  if (const auto* const refused = std::get_if<RecordError>(&decoded)) return Refused(*refused);
  const BlockId block = promise.Take();
  store->Write(pool.Address(block), std::get<RecordView>(decoded).payload);
  return block;
}

LoadProgress KvCache::Poll(Lease& lease) {
  const WriterLock lock(impl_->mutex);
  impl_->PollTier();
  const Lease::Impl& impl = *lease.impl_;
  LoadProgress progress;
  if (impl.loads.empty()) return progress;
  progress.blocks.assign(impl.tier_keys.size(), LoadState::kLoaded);
  for (const BlockLoad& load : impl.loads) {
    LoadState& state = progress.blocks[load.block];
    if (load.id) progress.done = false;
    if (load.state == LoadState::kFailed) {
      if (progress.failure.empty()) progress.failure = load.failure;
      state = LoadState::kFailed;
    } else if (load.state == LoadState::kPending && state != LoadState::kFailed) {
      state = LoadState::kPending;
    }
  }
  return progress;
}

size_t KvCache::Install(Lease& lease) {
  const WriterLock lock(impl_->mutex);
  return impl_->Install(*lease.impl_);
}

size_t KvCache::Impl::Install(Lease::Impl& lease) {
  if (lease.loads.empty()) return 0;
  size_t num_ready = lease.tier_keys.size();
  for (const BlockLoad& load : lease.loads) {
    if (load.state == LoadState::kLoaded || load.block >= num_ready) continue;
    num_ready = load.block;
  }
  for (const BlockLoad& load : lease.loads) {
    if (load.state != LoadState::kFailed || load.block != num_ready) continue;
    lease.tier_failure = load.failure;
    lease.tier_failed_end = (lease.num_blocks + lease.tier_keys.size()) * block_tokens;
  }
  std::vector<BlockSlot> slots(num_ready * num_groups());
  for (BlockLoad& load : lease.loads) {
    if (load.block >= num_ready) continue;
    slots[load.block * num_groups() + Index(load.group)] =
        BlockSlot(*std::exchange(load.loaded, std::nullopt));
  }
  const size_t held_before = lease.num_blocks;
  if (num_ready > 0) {
    PublishLoaded(lease.node, {.at = lease.node,
                               .tokens = lease.prompt.tokens.subspan(held_before * block_tokens,
                                                                     num_ready * block_tokens),
                               .slots = slots,
                               .keys = std::span(lease.tier_keys).first(num_ready),
                               .retention = lease.prompt.retention,
                               .ttl_us = lease.prompt.ttl_us});
  }
  DropLoads(lease);
  Empty(lease);
  Fill(lease);
  const size_t gained = (lease.num_blocks - std::min(held_before, lease.num_blocks)) * block_tokens;
  lease.tier_tokens += gained;
  if (lease.provisional) in_flight.Advance(*lease.provisional, lease.num_blocks * block_tokens);
  return gained;
}

size_t KvCache::Impl::PublishLoaded(Node*& node, PrefixCache::Publication publication) {
  size_t num_done = 0;
  const auto end_references = [&](std::span<const BlockSlot> slots, bool full_too) {
    for (size_t i = 0; i < slots.size(); ++i) {
      const bool is_full = group(i % num_groups()).kind == GroupKind::kFull;
      if (slots[i] && (full_too || !is_full)) pool.Release(*slots[i]);
    }
  };
  while (!publication.tokens.empty() && prefixes.IsFindable(node)) {
    publication.at = node;
    const PrefixCache::Published found = prefixes.Publish(publication);
    node = found.node;
    for (size_t b = 0; b < found.num_blocks; ++b) {
      const auto own = publication.slots.first(num_groups());
      if (!found.existing) {
        end_references(own, /*full_too=*/false);
      } else if (HaveSameBytes(found.slots.subspan(b * num_groups(), num_groups()), own)) {
        for (size_t i = 0; i < num_groups(); ++i) {
          if (own[i] && !found.slots[b * num_groups() + i]) {
            prefixes.FillSlot(found.node, b, static_cast<GroupId>(i), *own[i]);
          }
        }
        end_references(own, /*full_too=*/true);
      } else {
        node = WithdrawDiffering(found.node, found.node->position / block_tokens + b);
        end_references(publication.slots, /*full_too=*/true);
        return num_done;
      }
      ++num_done;
      publication.tokens = publication.tokens.subspan(block_tokens);
      publication.slots = publication.slots.subspan(num_groups());
      if (!publication.keys.empty()) publication.keys = publication.keys.subspan(1);
    }
  }
  end_references(publication.slots, /*full_too=*/true);
  return num_done;
}

void KvCache::Impl::DropLoads(Lease::Impl& lease) {
  for (BlockLoad& load : lease.loads) {
    if (load.id) {
      loading.erase(static_cast<uint64_t>(*load.id));
      tier_io->Finish(*load.id);
    }
    if (load.loaded) pool.Release(*load.loaded);
  }
  lease.loads.clear();
  lease.promises.clear();
}

// ---- Export and import

std::vector<std::byte> KvCache::Export(NamespaceId ns, std::span<const TokenId> tokens) const {
  const size_t block_tokens = impl_->block_tokens;
  const ReaderLock lock(impl_->mutex);
  const Match match = impl_->prefixes.Find(ns, tokens, SIZE_MAX).match;
  const Impl::Namespace& name_space = *impl_->namespaces[static_cast<size_t>(ns)];
  std::vector<std::byte> records;
  std::vector<std::byte> payload;
  RecordKey parent;
  for (size_t block = 0; block < match.num_blocks; ++block) {
    const Node* const node = impl_->prefixes.NodeWith(match.node, block);
    const size_t in_node = block - node->position / block_tokens;
    const auto own_tokens = tokens.subspan(block * block_tokens, block_tokens);
    for (size_t i = 0; i < impl_->num_groups(); ++i) {
      const BlockSlot slot = node->slots[in_node * impl_->num_groups() + i];
      if (!slot) continue;
      payload.resize(impl_->group(i).block_bytes);
      impl_->store->Read(payload, impl_->pool.Address(*slot));
      const RecordIdentity identity =
          impl_->IdentityOf(ns, static_cast<GroupId>(i), parent, block * block_tokens, own_tokens);
      const auto record = EncodeRecord(identity, payload, impl_->mac_key());
      records.insert(records.end(), record.begin(), record.end());
    }
    parent = RecordKeyOf(parent, name_space.fingerprint.digest(), name_space.hash, own_tokens);
  }
  return records;
}

Result<size_t> KvCache::Import(NamespaceId ns, std::span<const std::byte> records) {
  return impl_->Import(ns, records);
}

namespace {

// The next record of a stream, and what comes after it.
std::variant<RecordView, RecordError> CutRecord(std::span<const std::byte>& records,
                                                const MacKey* mac_key) {
  constexpr size_t kPeekBytes = 24;
  std::span<const std::byte> record = records;
  if (records.size() >= kPeekBytes) {
    const auto bytes = PeekRecordBytes(records);
    if (bytes && *bytes <= records.size()) record = records.first(static_cast<size_t>(*bytes));
  }
  records = records.subspan(record.size());
  return ReadRecord(record, mac_key);
}

}  // namespace

// Records of one block, one a group, follow each other; blocks come in the order of the text.
struct KvCache::Impl::Importing {
  NamespaceId ns;
  Node* node;  // pinned
  RecordKey parent;
  size_t position = 0;           // of the block that is being put together …
  std::vector<TokenId> tokens;   // … its tokens, none before its first record
  std::vector<BlockSlot> slots;  // … and what has come, by group
  size_t num_blocks = 0;         // done
};

Result<size_t> KvCache::Impl::Import(NamespaceId ns, std::span<const std::byte> records) {
  Importing importing{.ns = ns,
                      .node = prefixes.tree().root(RootOf(ns)),
                      .parent = {},
                      .tokens = {},
                      .slots = std::vector<BlockSlot>(num_groups())};
  {
    const WriterLock lock(mutex);
    prefixes.Pin(importing.node);
  }
  Status status;
  while (status.ok() && !records.empty()) {
    const auto read = CutRecord(records, mac_key());
    if (const auto* const refused = std::get_if<RecordError>(&read)) {
      status = Refused(*refused);
    } else {
      status = ImportRecord(importing, std::get<RecordView>(read));
    }
  }
  if (status.ok()) status = ImportBlock(importing);
  for (BlockSlot& slot : importing.slots) {
    if (slot) pool.Release(*slot);
  }
  const WriterLock lock(mutex);
  prefixes.Unpin(importing.node);
  if (!status.ok()) return status.error();
  return importing.num_blocks;
}

Status KvCache::Impl::ImportRecord(Importing& importing, const RecordView& record) {
  const std::vector<TokenId> tokens = record.Tokens();
  if (!importing.tokens.empty() && record.first_position != importing.position) {
    KVERN_RETURN_IF_ERROR(ImportBlock(importing));
  }
  const size_t index = Index(record.layout.group);
  if (index >= num_groups() || tokens.size() != block_tokens || importing.slots[index]) {
    return Errorf(ErrorCode::kCorrupt,
                  "record at position {}: group {} with {} tokens is not the next block of a text: "
                  "import what Export() wrote, in its order",
                  record.first_position, index, tokens.size());
  }
  const auto expected_tokens =
      importing.tokens.empty() ? std::span<const TokenId>(tokens) : importing.tokens;
  const RecordIdentity identity = IdentityOf(importing.ns, record.layout.group, importing.parent,
                                             importing.position, expected_tokens);
  if (const auto refused = CheckIdentity(record, identity)) return Refused(*refused);
  BlockCounts needed = {};
  needed[index] = 1;
  KVERN_RETURN_IF_ERROR(MakeRoom(importing.ns, needed));
  const OwnerId owner = OwnerOf(importing.ns);
  KVERN_RETURN_IF_ERROR(pool.Reserve(record.layout.group, 1, owner));
  const BlockId block = pool.Take(record.layout.group, owner);
  store->Write(pool.Address(block), record.payload);
  importing.slots[index] = BlockSlot(block);
  importing.tokens = tokens;
  return {};
}

Status KvCache::Impl::ImportBlock(Importing& importing) {
  if (importing.tokens.empty()) return {};
  for (size_t i = 0; i < num_groups(); ++i) {
    if (importing.slots[i] || group(i).kind != GroupKind::kFull) continue;
    return Errorf(ErrorCode::kCorrupt,
                  "records of the block at position {} lack group {}: import what Export() wrote",
                  importing.position, i);
  }
  const WriterLock lock(mutex);
  std::vector<RecordKey> keys;
  const RecordKey key = RecordKeyOf(
      importing.parent, namespaces[static_cast<size_t>(importing.ns)]->fingerprint.digest(),
      namespaces[static_cast<size_t>(importing.ns)]->hash, importing.tokens);
  if (tier_io != nullptr) keys.push_back(key);
  const size_t num_published = PublishLoaded(importing.node, {.at = importing.node,
                                                              .tokens = importing.tokens,
                                                              .slots = importing.slots,
                                                              .keys = keys,
                                                              .retention = Retention::kNormal,
                                                              .ttl_us = {}});
  importing.slots.assign(num_groups(), BlockSlot());
  importing.tokens.clear();
  if (num_published == 0) {
    return Errorf(
        ErrorCode::kCorrupt,
        "the record at position {} has other K/V than this cache computed: the text after "
        "it is not imported, and neither is kept",
        importing.position);
  }
  ++importing.num_blocks;
  importing.position += block_tokens;
  importing.parent = key;
  return {};
}

}  // namespace kvern::kv
