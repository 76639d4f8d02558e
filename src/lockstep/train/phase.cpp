#include "lockstep/train/phase.h"

#include <fmt/format.h>

#include "lockstep/base/text.h"

namespace lockstep {

std::string describe(const std::vector<Phase>& phases) {
  std::vector<std::string> parts;
  for (const Phase& phase : phases) {
    if (phase.name.empty()) continue;
    std::vector<std::string> more;
    if (phase.optimizers != std::vector{phase.name})
      more.push_back(join(phase.optimizers, " and "));
    if (phase.every > 1) more.push_back(fmt::format("every {}", phase.every));
    parts.push_back(more.empty() ? phase.name
                                 : fmt::format("{} ({})", phase.name, join(more, ", ")));
  }
  return join(parts, ", ");
}

}  // namespace lockstep
