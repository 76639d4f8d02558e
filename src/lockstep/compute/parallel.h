// Runs our own loops on torch's intra-op threads.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep::compute {

struct Ranges {
  std::int64_t size = 0;   // the loop is over [0, size)
  std::int64_t grain = 1;  // the smallest range that is worth a thread
};

// Calls body(begin, end) for ranges that together are [0, size), on at most at::get_num_threads()
// threads. The number of ranges and their limits are not defined.
void for_ranges(const Ranges& ranges, const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace lockstep::compute
