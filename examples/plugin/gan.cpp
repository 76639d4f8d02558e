// The runner and the data of examples/gan, for examples/configs/gan.yml:
//   lockstep run -C examples/configs/gan.yml --plugin build/libgan.so
#include "../gan/gan.h"

#include <lockstep/recipe/plugin.h>

struct RingOptions {
  std::int64_t samples = 4096;
  std::uint64_t seed = 1;
};

LOCKSTEP_PLUGIN(targets) {
  targets.runners.add("Gan", "Trains a generator and a discriminator of points.",
                      [] { return std::make_shared<Gan>(); });
  targets.datasets.add<RingOptions>(
      "Ring", "Points of eight blobs on a circle.",
      {{"samples", &RingOptions::samples, "how many points"},
       {"seed", &RingOptions::seed, "of the points"}},
      [](const RingOptions& options) {
        return real_points(options.samples, at::detail::createCPUGenerator(options.seed));
      });
}
