// The KV library of kvern/kv.h for C and for languages that call C. C99.
//
// The operations, their order and their meaning are those of kvern/kv.h, and docs/kv-library.md
// explains them; this header says what differs.
//
// Errors: every call that can fail returns a status; kvern_kv_last_error() has its message. A call
// that fails has written no result and, but for KVERN_KV_INTERNAL, changed nothing, though cached
// text may have been evicted for it. A null pointer, an id that was never given out, a length
// beyond its bounds, a handle that has ended: each is KVERN_KV_INVALID_ARGUMENT. No exception
// leaves the library, and none may leave a callback.
//
// Ownership: a handle is made by the call that writes it and ended by its *_free, which takes null
// too. A cache is freed after its handles. The library copies all that is passed to it (tokens,
// names, tables of callbacks); what callbacks point to must outlive the cache. What a call points
// out to the caller is valid until the next call with the same handle, if nothing else is said.
//
// Versions: every struct with a `struct_size` is filled with zeros and its own sizeof by the
// caller; a zero field means the default. So a program that was built with an older header works
// with a newer library: fields are only ever added at the end, and not in padding. In an array all
// elements have the struct_size of the first, which is the stride.
//
// Threads: as kvern/kv.h: one writer at a time; kvern_kv_explain(), kvern_kv_get_stats(),
// kvern_kv_get_usage() and kvern_kv_visit_tree() from any thread. What kvern_kv_last_error() says
// is of the calling thread.
//
// Sizes: positions and lengths are in tokens, sizes in bytes, times in microseconds of any
// monotonic clock that the caller owns.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Of this header. Versions with one major number are compatible as said above.
#define KVERN_KV_VERSION_MAJOR 1
#define KVERN_KV_VERSION_MINOR 0
#define KVERN_KV_VERSION (KVERN_KV_VERSION_MAJOR * 1000 + KVERN_KV_VERSION_MINOR)

// Of the library that runs.
uint32_t kvern_kv_version(void);

typedef int32_t kvern_kv_status;
enum {
  KVERN_KV_OK = 0,
  KVERN_KV_INVALID_ARGUMENT = 1,
  KVERN_KV_NOT_FOUND = 2,
  KVERN_KV_CORRUPT = 3,
  KVERN_KV_UNSUPPORTED = 4,
  KVERN_KV_OUT_OF_MEMORY = 5,  // KV memory: try again when some was given back
  KVERN_KV_IO = 6,
  // The system refused memory for the library's own tables, or the library is at fault: the cache
  // must not be used any more.
  KVERN_KV_INTERNAL = 7
};

// One line about the last call of this thread that failed; "" if none has.
const char* kvern_kv_last_error(void);

typedef struct kvern_kv_cache kvern_kv_cache;
typedef struct kvern_kv_lease kvern_kv_lease;
typedef struct kvern_kv_waiter kvern_kv_waiter;
typedef struct kvern_kv_sequence kvern_kv_sequence;
typedef struct kvern_kv_explanation kvern_kv_explanation;

// Bytes that the library gives away. kvern_kv_bytes_free() empties it, so that a second is safe.
typedef struct kvern_kv_bytes {
  uint8_t* data;
  size_t size;
} kvern_kv_bytes;
void kvern_kv_bytes_free(kvern_kv_bytes* bytes);

// ---- Memory, tiers and options

// Where blocks lie and how their bytes are moved: kvern/kv_store.h. With `allocate` null the
// library has host memory of its own, and only `copy_rows` is called.
typedef struct kvern_kv_store {
  size_t struct_size;
  void* context;  // first argument of each callback
  // Copies the rows of the first `num_tokens` of one block of `group` into a zeroed one. Needed.
  void (*copy_rows)(void* context, uint32_t group, void* to, const void* from, uint32_t num_tokens);
  // At least `bytes` zeros, aligned to 64; writes what it really took. Null: there is no memory.
  void* (*allocate)(void* context, size_t bytes, size_t* region_bytes);
  void (*release)(void* context, void* region, size_t region_bytes);
  void (*zero)(void* context, void* to, size_t bytes);
  void (*copy)(void* context, void* to, const void* from, size_t bytes);
  // Host bytes out of and into blocks, and whether two blocks are the same. Null: memcpy, memcmp.
  void (*read)(void* context, void* to, const void* from, size_t bytes);
  void (*write)(void* context, void* to, const void* from, size_t bytes);
  bool (*equal)(void* context, const void* a, const void* b, size_t bytes);
} kvern_kv_store;

typedef struct kvern_kv_tier_completion {
  uint64_t ticket;
  kvern_kv_status status;
  size_t bytes;  // read or written
} kvern_kv_tier_completion;

// A tier of the caller's: kvern/kv_tier.h. All callbacks are needed. Keys have 32 bytes.
typedef struct kvern_kv_tier {
  size_t struct_size;
  void* context;  // first argument of each callback
  bool (*contains)(void* context, const uint8_t* key);
  void (*start_load)(void* context, uint64_t ticket, const uint8_t* key, void* into, size_t bytes);
  void (*start_store)(void* context, uint64_t ticket, const uint8_t* key, const void* record,
                      size_t bytes);
  void (*cancel)(void* context, uint64_t ticket);
  // Writes at most `capacity` completions and returns how many; called again while it is all.
  size_t (*poll)(void* context, kvern_kv_tier_completion* completions, size_t capacity);
  void (*remove)(void* context, const uint8_t* key);
} kvern_kv_tier;

enum { KVERN_KV_FULL = 0, KVERN_KV_WINDOW = 1, KVERN_KV_STATE = 2 };

typedef struct kvern_kv_group {
  size_t struct_size;
  uint32_t kind;
  uint32_t window;         // tokens; KVERN_KV_WINDOW only
  size_t block_bytes;      // a positive multiple of 64
  uint32_t block_tokens;   // 0: 16; the same in all groups
  uint32_t max_rollback;   // tokens that a truncate may take back from a window or state
  bool whole_blocks_only;  // a row depends on later tokens of its block
} kvern_kv_group;

typedef struct kvern_kv_options {
  size_t struct_size;
  const kvern_kv_group* groups;  // one to four
  size_t num_groups;
  size_t budget_bytes;
  size_t min_slab_bytes;  // 0: 4 MiB
  const kvern_kv_store* store;
  const char* eviction;          // null: "lru"; "lfu", "s3fifo", "cost"
  size_t history_blocks;         // 0: 65,536
  size_t span_bytes_per_tenant;  // that spans may protect
  const kvern_kv_tier* tier;     // null: none, or that of tier_name
  const char* tier_name;         // a tier of the library: "memory"; null: none
  uint64_t tier_capacity_bytes;  // of that
  size_t tier_io_blocks;         // 0: 64
  const uint8_t* mac_key;        // 32 bytes; null: records carry no MAC
  // Of computing `num_tokens` from `position` on, in any unit, for "cost". Null: a transformer's.
  double (*recompute_cost)(void* context, size_t position, size_t num_tokens);
  void* recompute_cost_context;
} kvern_kv_options;

kvern_kv_status kvern_kv_cache_new(const kvern_kv_options* options, kvern_kv_cache** cache);
// KVERN_KV_INVALID_ARGUMENT, and the cache is as before, while it has leases, waiters or sequences.
kvern_kv_status kvern_kv_cache_free(kvern_kv_cache* cache);

// Not less than before.
kvern_kv_status kvern_kv_set_time(kvern_kv_cache* cache, int64_t now_us);

// ---- Namespaces

enum { KVERN_KV_U64 = 0, KVERN_KV_F64 = 1, KVERN_KV_TEXT = 2, KVERN_KV_DIGEST = 3 };

typedef struct kvern_kv_field {
  size_t struct_size;
  const char* name;  // 1 to 64 of a-z 0-9 _ and .
  uint32_t type;     // which of these it has:
  uint64_t u64;
  double f64;
  const char* text;
  const uint8_t* digest;  // 32 bytes
} kvern_kv_field;

typedef struct kvern_kv_namespace_spec {
  size_t struct_size;
  uint32_t numerics_version;
  const kvern_kv_field* fingerprint;  // everything that K/V depends on beside tokens
  size_t num_fields;
  const char* adapter;  // null: none
  const char* tenant;   // a secret salt, or a name; null: everybody
} kvern_kv_namespace_spec;

// The same spec always gives the same id.
kvern_kv_status kvern_kv_open_namespace(kvern_kv_cache* cache, const kvern_kv_namespace_spec* spec,
                                        uint32_t* ns);

// ---- Lookups

enum { KVERN_KV_KEEP_NORMAL = 0, KVERN_KV_KEEP_LOW = 1, KVERN_KV_KEEP_HIGH = 2 };

typedef struct kvern_kv_prompt {
  size_t struct_size;
  uint32_t ns;
  const uint32_t* tokens;  // at least one
  size_t num_tokens;
  bool bypass_cache;  // finds nothing and is never found
  bool has_max_hit;
  size_t max_hit;      // at most this many tokens are taken from the cache
  uint32_t retention;  // KVERN_KV_KEEP_*
  bool has_ttl;
  int64_t ttl_us;  // keep no longer than this after the last use
} kvern_kv_prompt;

// What was found stays pinned until the lease is freed or has ended.
kvern_kv_status kvern_kv_lookup(kvern_kv_cache* cache, const kvern_kv_prompt* prompt,
                                kvern_kv_lease** lease);
void kvern_kv_lease_free(kvern_kv_lease* lease);

typedef struct kvern_kv_lease_info {
  size_t struct_size;
  size_t num_tokens;          // of the prompt
  size_t num_ram_tokens;      // whole blocks at the start that are in memory
  size_t num_partial_tokens;  // rows after those, which admission copies
  size_t num_tier_tokens;     // after the RAM tokens, on the tier
  size_t num_misses;
  bool has_producer;           // of what comes after the RAM tokens
  bool has_producer_sequence;  // not while the one to take over is not admitted
  uint64_t producer_sequence;
  size_t producer_end;  // it will publish the prompt's tokens up to here
} kvern_kv_lease_info;

kvern_kv_status kvern_kv_lease_get(const kvern_kv_lease* lease, kvern_kv_lease_info* info);

// The order of MissReason in kvern/kv_report.h.
enum {
  KVERN_KV_NEVER_SEEN = 0,
  KVERN_KV_EVICTED = 1,
  KVERN_KV_UNKNOWN = 2,
  KVERN_KV_OTHER_TOKEN = 3,
  KVERN_KV_OTHER_NAMESPACE = 4,
  KVERN_KV_LOGITS_NEEDED = 5,
  KVERN_KV_GROUP_NOT_HELD = 6,
  KVERN_KV_TIER_FAILED = 7,
  KVERN_KV_POLICY_OFF = 8
};
// "never_seen"; null for a number that is no reason.
const char* kvern_kv_miss_reason_name(uint32_t reason);

typedef struct kvern_kv_miss {
  size_t struct_size;
  uint32_t reason;
  size_t position;  // of the first token
  size_t num_tokens;
  bool has_difference;  // KVERN_KV_OTHER_TOKEN:
  size_t differs_at;
  uint32_t wanted;  // the prompt's token there
  uint32_t cached;  // and that of a cached text
  bool has_when;    // KVERN_KV_EVICTED
  int64_t when_us;
  bool has_group;  // KVERN_KV_GROUP_NOT_HELD
  uint32_t group;
  const char* cause;  // evicted by what, or why the tier failed; or ""
} kvern_kv_miss;

kvern_kv_status kvern_kv_lease_miss(const kvern_kv_lease* lease, size_t index, kvern_kv_miss* miss);

// ---- Loads from a tier

enum { KVERN_KV_LOAD_PENDING = 0, KVERN_KV_LOADED = 1, KVERN_KV_LOAD_FAILED = 2 };

typedef struct kvern_kv_load_progress {
  size_t struct_size;
  const uint8_t* blocks;  // KVERN_KV_LOAD_* of each, in position order
  size_t num_blocks;
  const char* failure;  // of the first that failed, or ""
  bool done;            // no I/O is under way
} kvern_kv_load_progress;

kvern_kv_status kvern_kv_start_load(kvern_kv_lease* lease);
kvern_kv_status kvern_kv_poll(kvern_kv_lease* lease, kvern_kv_load_progress* progress);
// Publishes what was loaded up to the first failure. `num_tokens`: gained; may be null.
kvern_kv_status kvern_kv_install(kvern_kv_lease* lease, size_t* num_tokens);
// Completes I/O with the tier; kvern_kv_poll() does so too.
kvern_kv_status kvern_kv_poll_tier(kvern_kv_cache* cache);

// ---- Admission and waiting

typedef struct kvern_kv_admit_options {
  size_t struct_size;
  int32_t priority;  // higher is better
  bool is_private;   // nobody finds or awaits what it computes
  bool is_resume;    // it comes back after preemption: counted apart
  size_t reserve_tokens;
} kvern_kv_admit_options;

// Begins a sequence with what the lease has in RAM. The lease has ended then: free it. `options`
// may be null.
kvern_kv_status kvern_kv_admit(kvern_kv_lease* lease, const kvern_kv_admit_options* options,
                               kvern_kv_sequence** sequence);

// Waits for the lease's producer. The lease has ended then: free it.
kvern_kv_status kvern_kv_wait(kvern_kv_lease* lease, int32_t priority, kvern_kv_waiter** waiter);
// Gives up waiting.
void kvern_kv_waiter_free(kvern_kv_waiter* waiter);
kvern_kv_status kvern_kv_waiter_id(const kvern_kv_waiter* waiter, uint64_t* id);
// `has_producer`: false while the next one is not admitted.
kvern_kv_status kvern_kv_waiter_producer(const kvern_kv_waiter* waiter, bool* has_producer,
                                         uint64_t* sequence);
// After an event, or to go on alone: looks up again. The waiter has ended then: free it.
kvern_kv_status kvern_kv_retry(kvern_kv_waiter* waiter, kvern_kv_lease** lease);

enum { KVERN_KV_READY = 0, KVERN_KV_TAKE_OVER = 1 };
typedef struct kvern_kv_event {
  uint64_t waiter;  // its id
  uint32_t kind;
} kvern_kv_event;

// Waiters that can go on, best first, each told once. Writes at most `capacity`; the rest comes
// with the next call.
kvern_kv_status kvern_kv_take_events(kvern_kv_cache* cache, kvern_kv_event* events, size_t capacity,
                                     size_t* num_events);

// ---- Sequences

// Releases its blocks; what was published stays cached.
void kvern_kv_sequence_free(kvern_kv_sequence* sequence);

typedef struct kvern_kv_sequence_info {
  size_t struct_size;
  uint64_t id;
  size_t length;
  size_t committed;
  size_t num_published;  // tokens that others can find
  int32_t effective_priority;
} kvern_kv_sequence_info;

kvern_kv_status kvern_kv_sequence_get(const kvern_kv_sequence* sequence,
                                      kvern_kv_sequence_info* info);

kvern_kv_status kvern_kv_reserve(kvern_kv_sequence* sequence, size_t num_tokens);
kvern_kv_status kvern_kv_append(kvern_kv_sequence* sequence, const uint32_t* tokens,
                                size_t num_tokens);
// From the committed length to the length.
kvern_kv_status kvern_kv_commit(kvern_kv_sequence* sequence, size_t length);
kvern_kv_status kvern_kv_truncate(kvern_kv_sequence* sequence, size_t length);
kvern_kv_status kvern_kv_fork(kvern_kv_sequence* sequence, kvern_kv_sequence** fork);

// The blocks of one group in position order, valid until the sequence changes. Only rows of
// positions from the committed length to the length may be written.
kvern_kv_status kvern_kv_view(const kvern_kv_sequence* sequence, uint32_t group,
                              void* const** blocks, size_t* num_blocks);

// ---- Cached text

typedef struct kvern_kv_span_grant {
  size_t struct_size;
  size_t num_tokens;  // protected, from the start of the text: what the budget allowed
  int64_t expires_us;
} kvern_kv_span_grant;
// Protects the cached prefix of `tokens` for `ttl_us` (> 0). `grant` may be null.
kvern_kv_status kvern_kv_keep_span(kvern_kv_cache* cache, uint32_t ns, const uint32_t* tokens,
                                   size_t num_tokens, int64_t ttl_us, kvern_kv_span_grant* grant);

// Evicts everything that nobody holds, of one namespace, or of all if null. `num_blocks` may be
// null.
kvern_kv_status kvern_kv_drop_cached(kvern_kv_cache* cache, const uint32_t* ns, size_t* num_blocks);

// Records of the cached text that matches `tokens` (docs/record-format.md).
kvern_kv_status kvern_kv_export(const kvern_kv_cache* cache, uint32_t ns, const uint32_t* tokens,
                                size_t num_tokens, kvern_kv_bytes* records);
// Verifies records and publishes their blocks. What came before one that is refused is kept.
// `num_blocks` may be null.
kvern_kv_status kvern_kv_import(kvern_kv_cache* cache, uint32_t ns, const void* records,
                                size_t num_bytes, size_t* num_blocks);

// ---- Reports

// Arrays of counts have room for later versions: unused elements are zero.
enum { KVERN_KV_MAX_REASONS = 16, KVERN_KV_MAX_CAUSES = 16, KVERN_KV_MAX_REFUSALS = 32 };

typedef struct kvern_kv_split {
  size_t ram, tier, in_flight, partial;
  size_t miss[KVERN_KV_MAX_REASONS];  // by reason
} kvern_kv_split;

// What a prompt would get now. It outlives changes of the cache, and the cache.
kvern_kv_status kvern_kv_explain(const kvern_kv_cache* cache, uint32_t ns, const uint32_t* tokens,
                                 size_t num_tokens, kvern_kv_explanation** explanation);
void kvern_kv_explanation_free(kvern_kv_explanation* explanation);
kvern_kv_status kvern_kv_explanation_get(const kvern_kv_explanation* explanation,
                                         kvern_kv_split* split, size_t* num_misses);
kvern_kv_status kvern_kv_explanation_miss(const kvern_kv_explanation* explanation, size_t index,
                                          kvern_kv_miss* miss);
// Lines for people; "" of a null explanation.
const char* kvern_kv_explanation_text(const kvern_kv_explanation* explanation);

typedef struct kvern_kv_state_counts {
  size_t active, cached, reserved, free;
} kvern_kv_state_counts;

// Counts of values in [2^(i-1), 2^i); bucket 0 is zero, the 48th has all larger ones.
typedef struct kvern_kv_histogram {
  uint64_t buckets[64];
  uint64_t count;
  uint64_t sum;
} kvern_kv_histogram;

typedef struct kvern_kv_stats {
  size_t struct_size;
  kvern_kv_state_counts bytes;  // sums to budget_bytes
  kvern_kv_state_counts peak_bytes;
  size_t budget_bytes;
  size_t index_bytes;
  kvern_kv_split prompts;  // in tokens, at first admission
  kvern_kv_split resumes;  // the same after preemption
  uint64_t num_prompts;
  uint64_t num_resumes;
  uint64_t evicted_blocks[KVERN_KV_MAX_CAUSES];     // EvictionCause in kvern/kv_report.h
  uint64_t records_refused[KVERN_KV_MAX_REFUSALS];  // RecordRefusal there
  uint64_t blocks_published;
  uint64_t blocks_merged;
  uint64_t rows_copied;
  uint64_t one_answer_violations;
  uint64_t loads_started;
  uint64_t blocks_loaded;
  uint64_t blocks_failed;
  uint64_t take_overs;
  kvern_kv_histogram lifetime_us;
  kvern_kv_histogram idle_before_evict_us;
  kvern_kv_histogram reuse_gap_us;
} kvern_kv_stats;

kvern_kv_status kvern_kv_get_stats(const kvern_kv_cache* cache, kvern_kv_stats* stats);
// Names for the indexes above; null for a number that is none.
const char* kvern_kv_eviction_cause_name(uint32_t cause);
const char* kvern_kv_record_refusal_name(uint32_t refusal);

typedef struct kvern_kv_usage {
  size_t struct_size;
  size_t active_bytes, cached_bytes, peak_active_bytes, peak_cached_bytes;
} kvern_kv_usage;
kvern_kv_status kvern_kv_get_usage(const kvern_kv_cache* cache, uint32_t ns, kvern_kv_usage* usage);

typedef struct kvern_kv_tree_node {
  size_t struct_size;
  size_t depth;            // in nodes; the root has depth 0 and no tokens
  size_t position;         // of its first token
  const uint32_t* tokens;  // valid during the visit, as the node is
  size_t num_tokens;
  size_t num_holders;
  uint64_t num_uses;
} kvern_kv_tree_node;

// Calls `visit` with each node of a copy of the prefix tree, children after their parent.
kvern_kv_status kvern_kv_visit_tree(const kvern_kv_cache* cache, uint32_t ns,
                                    void (*visit)(void* context, const kvern_kv_tree_node* node),
                                    void* context);

// Aborts with a message if an invariant does not hold. For tests.
kvern_kv_status kvern_kv_check_invariants(const kvern_kv_cache* cache);

#ifdef __cplusplus
}  // extern "C"
#endif
