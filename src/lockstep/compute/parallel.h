// Torch's intra-op threads for our own loops.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep::compute {

struct Ranges {
  std::int64_t size = 0;   // the loop is over [0, size)
  std::int64_t grain = 1;  // the least that is worth a thread
};

// Calls body(begin, end) for ranges that make up [0, size), on at::get_num_threads() threads at
// most. How many ranges there are and where they end is not defined.
void for_ranges(const Ranges& ranges, const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace lockstep::compute
