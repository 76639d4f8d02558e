#include "bench/points.h"

#include <vector>

#include <fmt/format.h>

#include "bench/contestant.h"
#include "bench/median.h"

namespace lockstep::bench {
namespace {

constexpr int kRounds = 9;

double speed(const std::string& self, const std::string& work, const std::string& epochs,
             const std::string& max_restarts) {
  const Finished run = run_processes({.commands = {{self, "run", work, "--workers", "2", "--epochs",
                                                    epochs, "--max-restarts", max_restarts}}});
  return nlohmann::json::parse(run.output)["samples_per_second"];
}

}  // namespace

nlohmann::json run_points(const std::string& self) {
  nlohmann::json json = nlohmann::json::object();
  fmt::print("speed with max_restarts, as a share of the speed without, 2 workers\n\n");
  // Enough epochs for a second or two of training.
  for (const auto& [work, epochs] :
       {std::pair("A", "30"), std::pair("B", "4"), std::pair("F", "1")}) {
    std::vector<double> without, with;
    for (int round = 0; round < kRounds; ++round) {
      without.push_back(speed(self, work, epochs, "0"));
      with.push_back(speed(self, work, epochs, "5"));
    }
    const double ratio = median(with) / median(without);
    fmt::print("{:<4} {:>8.4f}   (spread of single runs {:.0f} %)\n", work, ratio,
               100 * spread(without));
    json[work] = {{"ratio", ratio}, {"without", median(without)}, {"with", median(with)}};
  }
  return json;
}

}  // namespace lockstep::bench
