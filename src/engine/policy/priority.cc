#include "engine/policy.h"

namespace kvern::engine {

// The scheduler compares priorities, so that waiting can raise them.
const SchedulingPolicy kPriority = {
    .name = "priority",
    .help = "the highest priority, which grows while a request waits",
    .by_priority = true,
    .before = [](const Candidate& a, const Candidate& b) { return a.arrival < b.arrival; }};

}  // namespace kvern::engine
