#include "engine/policy.h"

namespace kvern::engine {

const SchedulingPolicy kFcfs = {
    .name = "fcfs",
    .help = "first come, first served (default)",
    .before = [](const Candidate& a, const Candidate& b) { return a.arrival < b.arrival; }};

}  // namespace kvern::engine
