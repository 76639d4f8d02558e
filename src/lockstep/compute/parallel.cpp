// This is a separate file because ATen's loop uses threads only if it is compiled with OpenMP.
#include "lockstep/compute/parallel.h"

#include <ATen/Parallel.h>

namespace lockstep::compute {

void for_ranges(const Ranges& ranges, const std::function<void(std::int64_t, std::int64_t)>& body) {
  at::parallel_for(0, ranges.size, ranges.grain, body);
}

}  // namespace lockstep::compute
