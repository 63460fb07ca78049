/* The C API from C: a made-up engine whose rows are running sums of tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvern/kvern_kv.h"

enum { BLOCK_TOKENS = 16, ROW_BYTES = 8, BLOCK_BYTES = BLOCK_TOKENS * ROW_BYTES, MAX_TOKENS = 64 };

#define REQUIRE(condition)                                                                  \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      fprintf(stderr, "%s:%d: %s failed; last error: %s\n", __FILE__, __LINE__, #condition, \
              kvern_kv_last_error());                                                       \
      exit(1);                                                                              \
    }                                                                                       \
  } while (0)
#define OK(call) REQUIRE((call) == KVERN_KV_OK)
#define REFUSED(call) REQUIRE((call) == KVERN_KV_INVALID_ARGUMENT)

static void CopyRows(void* context, uint32_t group, void* to, const void* from,
                     uint32_t num_tokens) {
  size_t* num_copies = context;
  *num_copies += 1;
  (void)group;
  memcpy(to, from, (size_t)num_tokens * ROW_BYTES);
}

static kvern_kv_cache* MakeCache(size_t* num_copies, const char* tier_name) {
  const kvern_kv_group group = {.struct_size = sizeof(group), .block_bytes = BLOCK_BYTES};
  const kvern_kv_store store = {
      .struct_size = sizeof(store), .context = num_copies, .copy_rows = CopyRows};
  const kvern_kv_options options = {.struct_size = sizeof(options),
                                    .groups = &group,
                                    .num_groups = 1,
                                    .budget_bytes = 32 * BLOCK_BYTES,
                                    .min_slab_bytes = BLOCK_BYTES,
                                    .span_bytes_per_tenant = 2 * BLOCK_BYTES,
                                    .store = &store,
                                    .tier_name = tier_name,
                                    .tier_capacity_bytes = 1 << 20};
  kvern_kv_cache* cache = NULL;
  OK(kvern_kv_cache_new(&options, &cache));
  OK(kvern_kv_set_time(cache, 1000));
  return cache;
}

static uint32_t OpenNamespace(kvern_kv_cache* cache) {
  const uint8_t digest[32] = {1, 2, 3};
  const kvern_kv_field fields[] = {
      {.struct_size = sizeof(kvern_kv_field), .name = "layers", .type = KVERN_KV_U64, .u64 = 30},
      {.struct_size = sizeof(kvern_kv_field), .name = "eps", .type = KVERN_KV_F64, .f64 = 1e-5},
      {.struct_size = sizeof(kvern_kv_field),
       .name = "dtype",
       .type = KVERN_KV_TEXT,
       .text = "f16"},
      {.struct_size = sizeof(kvern_kv_field),
       .name = "weights",
       .type = KVERN_KV_DIGEST,
       .digest = digest}};
  const kvern_kv_namespace_spec spec = {.struct_size = sizeof(spec),
                                        .numerics_version = 1,
                                        .fingerprint = fields,
                                        .num_fields = 4,
                                        .tenant = "tenant"};
  uint32_t ns = 7, again = 8;
  OK(kvern_kv_open_namespace(cache, &spec, &ns));
  OK(kvern_kv_open_namespace(cache, &spec, &again));
  REQUIRE(ns == again);
  return ns;
}

static uint64_t RowOf(const uint32_t* tokens, size_t position) {
  uint64_t sum = 1;
  for (size_t i = 0; i <= position; ++i) sum = sum * 31 + tokens[i];
  return sum;
}

static kvern_kv_lease* Lookup(kvern_kv_cache* cache, uint32_t ns, const uint32_t* tokens,
                              size_t num_tokens) {
  /* The library copies the tokens: these are gone when this function returns. */
  uint32_t copy[MAX_TOKENS];
  memcpy(copy, tokens, num_tokens * sizeof(*tokens));
  const kvern_kv_prompt prompt = {
      .struct_size = sizeof(prompt), .ns = ns, .tokens = copy, .num_tokens = num_tokens};
  kvern_kv_lease* lease = NULL;
  OK(kvern_kv_lookup(cache, &prompt, &lease));
  memset(copy, 0xff, sizeof(copy));
  return lease;
}

static kvern_kv_lease_info InfoOf(const kvern_kv_lease* lease) {
  kvern_kv_lease_info info = {.struct_size = sizeof(info)};
  OK(kvern_kv_lease_get(lease, &info));
  return info;
}

static kvern_kv_sequence* Admit(kvern_kv_lease* lease) {
  kvern_kv_sequence* sequence = NULL;
  OK(kvern_kv_admit(lease, NULL, &sequence));
  kvern_kv_lease_info info = {.struct_size = sizeof(info)};
  REFUSED(kvern_kv_lease_get(lease, &info)); /* it has ended */
  kvern_kv_lease_free(lease);
  return sequence;
}

static kvern_kv_sequence_info InfoOfSequence(const kvern_kv_sequence* sequence) {
  kvern_kv_sequence_info info = {.struct_size = sizeof(info)};
  OK(kvern_kv_sequence_get(sequence, &info));
  return info;
}

/* Computes and commits [length, end) of `tokens`, after checking the rows before. */
static void Compute(kvern_kv_sequence* sequence, const uint32_t* tokens, size_t end) {
  const size_t begin = InfoOfSequence(sequence).length;
  OK(kvern_kv_reserve(sequence, end - begin));
  OK(kvern_kv_append(sequence, tokens + begin, end - begin));
  void* const* blocks = NULL;
  size_t num_blocks = 0;
  OK(kvern_kv_view(sequence, 0, &blocks, &num_blocks));
  REQUIRE(num_blocks == (end + BLOCK_TOKENS - 1) / BLOCK_TOKENS);
  for (size_t i = 0; i < end; ++i) {
    unsigned char* row = (unsigned char*)blocks[i / BLOCK_TOKENS] + i % BLOCK_TOKENS * ROW_BYTES;
    const uint64_t expected = RowOf(tokens, i);
    if (i >= begin) memcpy(row, &expected, sizeof(expected));
    REQUIRE(memcmp(row, &expected, sizeof(expected)) == 0);
  }
  OK(kvern_kv_commit(sequence, end));
}

static void TestSharing(void) {
  size_t num_copies = 0;
  kvern_kv_cache* cache = MakeCache(&num_copies, NULL);
  const uint32_t ns = OpenNamespace(cache);
  uint32_t text[40];
  for (uint32_t i = 0; i < 40; ++i) text[i] = i;

  kvern_kv_sequence* first = Admit(Lookup(cache, ns, text, 40));
  Compute(first, text, 20);
  REFUSED(kvern_kv_commit(first, 21)); /* not written yet */
  REFUSED(kvern_kv_truncate(first, 21));

  /* A second request waits for the first one's second block. */
  kvern_kv_lease* lease = Lookup(cache, ns, text, 40);
  kvern_kv_lease_info info = InfoOf(lease);
  REQUIRE(info.num_ram_tokens == 16 && info.has_producer && info.producer_end == 32);
  REQUIRE(info.has_producer_sequence && info.producer_sequence == InfoOfSequence(first).id);
  kvern_kv_waiter* waiter = NULL;
  OK(kvern_kv_wait(lease, 5, &waiter));
  kvern_kv_lease_free(lease);
  REQUIRE(InfoOfSequence(first).effective_priority == 5);
  kvern_kv_event event;
  size_t num_events = 9;
  OK(kvern_kv_take_events(cache, &event, 1, &num_events));
  REQUIRE(num_events == 0);
  Compute(first, text, 40);
  OK(kvern_kv_take_events(cache, &event, 1, &num_events));
  uint64_t id = 0;
  OK(kvern_kv_waiter_id(waiter, &id));
  REQUIRE(num_events == 1 && event.waiter == id && event.kind == KVERN_KV_READY);
  OK(kvern_kv_retry(waiter, &lease));
  kvern_kv_waiter_free(waiter);
  REQUIRE(InfoOf(lease).num_ram_tokens == 32);
  kvern_kv_sequence* second = Admit(lease);

  /* A fork goes another way; a draft is taken back. */
  kvern_kv_sequence* fork = NULL;
  OK(kvern_kv_fork(second, &fork));
  uint32_t other[40];
  memcpy(other, text, sizeof(other));
  other[35] = 999;
  Compute(second, text, 40);
  Compute(fork, other, 40);
  OK(kvern_kv_append(fork, text, 4));
  OK(kvern_kv_truncate(fork, 40));
  REQUIRE(InfoOfSequence(fork).length == 40 && InfoOfSequence(fork).num_published == 32);
  REFUSED(kvern_kv_cache_free(cache)); /* sequences are left */
  kvern_kv_sequence_free(first);
  kvern_kv_sequence_free(second);
  kvern_kv_sequence_free(fork);

  /* Partial reuse, and the reason of the miss. */
  uint32_t third[40];
  memcpy(third, text, sizeof(third));
  third[37] = 1234;
  lease = Lookup(cache, ns, third, 40);
  info = InfoOf(lease);
  REQUIRE(info.num_ram_tokens == 32 && info.num_partial_tokens == 5 && info.num_misses == 1);
  kvern_kv_miss miss = {.struct_size = sizeof(miss)};
  OK(kvern_kv_lease_miss(lease, 0, &miss));
  REQUIRE(miss.reason == KVERN_KV_OTHER_TOKEN && miss.has_difference && miss.differs_at == 37);
  REQUIRE(miss.wanted == 1234 && miss.cached == 37);
  REFUSED(kvern_kv_lease_miss(lease, 1, &miss));
  kvern_kv_sequence* sequence = Admit(lease);
  Compute(sequence, third, 40);
  kvern_kv_sequence_free(sequence);
  REQUIRE(num_copies > 0);

  kvern_kv_stats stats = {.struct_size = sizeof(stats)};
  OK(kvern_kv_get_stats(cache, &stats));
  REQUIRE(stats.prompts.ram + stats.prompts.in_flight == 16 + 16 + 32);
  REQUIRE(stats.prompts.in_flight == 16 && stats.prompts.partial == 5);
  REQUIRE(stats.bytes.cached + stats.bytes.free == stats.budget_bytes);
  kvern_kv_usage usage = {.struct_size = sizeof(usage)};
  OK(kvern_kv_get_usage(cache, ns, &usage));
  REQUIRE(usage.cached_bytes == stats.bytes.cached && usage.active_bytes == 0);
  OK(kvern_kv_check_invariants(cache));
  OK(kvern_kv_cache_free(cache));
}

static void CountNodes(void* context, const kvern_kv_tree_node* node) {
  *(size_t*)context += node->num_tokens;
}

static void TestCachedText(void) {
  size_t num_copies = 0;
  kvern_kv_cache* from = MakeCache(&num_copies, NULL);
  kvern_kv_cache* to = MakeCache(&num_copies, NULL);
  const uint32_t ns = OpenNamespace(from);
  REQUIRE(OpenNamespace(to) == ns);
  uint32_t text[48];
  for (uint32_t i = 0; i < 48; ++i) text[i] = 7 * i;
  kvern_kv_sequence* sequence = Admit(Lookup(from, ns, text, 48));
  Compute(sequence, text, 48);
  kvern_kv_sequence_free(sequence);

  kvern_kv_bytes records = {0};
  OK(kvern_kv_export(from, ns, text, 48, &records));
  size_t num_blocks = 0;
  OK(kvern_kv_import(to, ns, records.data, records.size, &num_blocks));
  REQUIRE(num_blocks == 3);
  records.data[records.size / 2] ^= 1;
  REQUIRE(kvern_kv_import(to, ns, records.data, records.size, NULL) == KVERN_KV_CORRUPT);
  kvern_kv_bytes_free(&records);
  kvern_kv_bytes_free(&records);
  sequence = Admit(Lookup(to, ns, text, 48));
  REQUIRE(InfoOfSequence(sequence).length == 48);
  Compute(sequence, text, 48);
  kvern_kv_sequence_free(sequence);

  kvern_kv_span_grant grant = {.struct_size = sizeof(grant)};
  OK(kvern_kv_keep_span(from, ns, text, 48, 500, &grant));
  REQUIRE(grant.num_tokens == 32 && grant.expires_us == 1500); /* the tenant's budget */
  size_t num_tokens = 0;
  OK(kvern_kv_visit_tree(from, ns, CountNodes, &num_tokens));
  REQUIRE(num_tokens == 48);
  OK(kvern_kv_drop_cached(from, &ns, &num_blocks));
  REQUIRE(num_blocks == 3);

  kvern_kv_explanation* explanation = NULL;
  OK(kvern_kv_explain(from, ns, text, 48, &explanation));
  kvern_kv_split split;
  size_t num_misses = 0;
  OK(kvern_kv_explanation_get(explanation, &split, &num_misses));
  REQUIRE(split.miss[KVERN_KV_EVICTED] == 48 && num_misses == 1);
  kvern_kv_miss miss = {.struct_size = sizeof(miss)};
  OK(kvern_kv_explanation_miss(explanation, 0, &miss));
  REQUIRE(miss.has_when && miss.when_us == 1000 && strlen(miss.cause) > 0);
  OK(kvern_kv_cache_free(from));
  OK(kvern_kv_cache_free(to));
  REQUIRE(strstr(kvern_kv_explanation_text(explanation), "48 tokens missed") != NULL);
  kvern_kv_explanation_free(explanation);
}

static void TestTier(void) {
  size_t num_copies = 0;
  kvern_kv_cache* cache = MakeCache(&num_copies, "memory");
  const uint32_t ns = OpenNamespace(cache);
  uint32_t text[48];
  for (uint32_t i = 0; i < 48; ++i) text[i] = 3 * i;
  kvern_kv_sequence* sequence = Admit(Lookup(cache, ns, text, 48));
  Compute(sequence, text, 48);
  kvern_kv_sequence_free(sequence);
  for (int i = 0; i < 10; ++i) OK(kvern_kv_poll_tier(cache));
  OK(kvern_kv_drop_cached(cache, NULL, NULL));

  kvern_kv_lease* lease = Lookup(cache, ns, text, 48);
  REQUIRE(InfoOf(lease).num_ram_tokens == 0 && InfoOf(lease).num_tier_tokens == 48);
  OK(kvern_kv_start_load(lease));
  REFUSED(kvern_kv_start_load(lease));
  kvern_kv_load_progress progress = {.struct_size = sizeof(progress)};
  do {
    OK(kvern_kv_poll(lease, &progress));
    REQUIRE(progress.num_blocks == 3);
  } while (!progress.done);
  for (size_t i = 0; i < 3; ++i) REQUIRE(progress.blocks[i] == KVERN_KV_LOADED);
  REQUIRE(strcmp(progress.failure, "") == 0);
  size_t gained = 0;
  OK(kvern_kv_install(lease, &gained));
  REQUIRE(gained == 48);
  sequence = Admit(lease);
  Compute(sequence, text, 48);
  kvern_kv_sequence_free(sequence);
  OK(kvern_kv_cache_free(cache));
}

int main(void) {
  REQUIRE(kvern_kv_version() == KVERN_KV_VERSION);
  REQUIRE(strcmp(kvern_kv_last_error(), "") == 0);
  TestSharing();
  TestCachedText();
  TestTier();
  return 0;
}
