// A file of its own because ATen's loop has threads only where it is compiled with OpenMP.
#include "lockstep/compute/parallel.h"

#include <ATen/Parallel.h>

namespace lockstep::compute {

void for_ranges(const Ranges& ranges, const std::function<void(std::int64_t, std::int64_t)>& body) {
  at::parallel_for(0, ranges.size, ranges.grain, body);
}

}  // namespace lockstep::compute
