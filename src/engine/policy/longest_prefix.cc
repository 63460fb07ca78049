#include "engine/policy.h"

namespace kvern::engine {

const SchedulingPolicy kLongestPrefix = {
    .name = "lpm",
    .help = "the one that finds most of its prompt in the cache, while it is there",
    .looks = true,
    .before = [](const Candidate& a, const Candidate& b) {
      return a.num_found != b.num_found ? a.num_found > b.num_found : a.arrival < b.arrival;
    }};

}  // namespace kvern::engine
