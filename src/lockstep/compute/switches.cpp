#include "lockstep/compute/switches.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::compute {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"plan", "patches", "pool", "memory",
                                                    "denormals"};

std::uint8_t bit(std::size_t speedup) {
  return static_cast<std::uint8_t>(1U << speedup);
}

std::uint8_t disabled_by_environment() {
  const char* const value = std::getenv("LOCKSTEP_DISABLE");
  std::uint8_t disabled = 0;
  std::string_view rest = value == nullptr ? "" : value;
  while (!rest.empty()) {
    const auto comma = std::min(rest.find(','), rest.size());
    const std::string_view name = rest.substr(0, comma);
    const auto* const found = std::ranges::find(kNames, name);
    if (found == kNames.end()) {
      const std::vector<std::string> known(kNames.begin(), kNames.end());
      throw ConfigError("LOCKSTEP_DISABLE: unknown '{}'; {}", name, suggest(name, known));
    }
    disabled |= bit(static_cast<std::size_t>(found - kNames.begin()));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return disabled;
}

// The speedups that WithoutSpeedup objects of this thread disable. It is global because LibTorch
// calls some of the kernels that read it.
thread_local std::uint8_t disabled_here = 0;

}  // namespace

bool is_enabled(Speedup speedup) {
  static const std::uint8_t disabled = disabled_by_environment();
  return ((disabled | disabled_here) & bit(static_cast<std::size_t>(speedup))) == 0;
}

WithoutSpeedup::WithoutSpeedup(Speedup speedup) : previous_(disabled_here) {
  disabled_here |= bit(static_cast<std::size_t>(speedup));
}

WithoutSpeedup::~WithoutSpeedup() {
  disabled_here = previous_;
}

}  // namespace lockstep::compute
