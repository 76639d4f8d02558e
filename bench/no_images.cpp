// For a build without the component image.
#include <fmt/format.h>

#include "bench/loading.h"

namespace lockstep::bench {

nlohmann::json run_images(const LoadingOptions&) {
  fmt::print(stderr, "I: not measured: this build was configured with LOCKSTEP_IMAGE=OFF\n");
  return {{"skipped", "LOCKSTEP_IMAGE=OFF"}};
}

}  // namespace lockstep::bench
