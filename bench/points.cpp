#include "bench/points.h"

#include <vector>

#include <fmt/format.h>

#include "bench/contestant.h"
#include "bench/median.h"

namespace lockstep::bench {
namespace {

// Single runs differ by tens of per cent on a machine with two cores. Each round gives the ratio of
// two runs that follow each other directly.
constexpr int kRounds = 41;

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
  // Enough epochs for about a second of training.
  for (const auto& [work, epochs] :
       {std::pair("A", "20"), std::pair("B", "3"), std::pair("F", "1")}) {
    std::vector<double> ratios;
    for (int round = 0; round < kRounds; ++round) {
      // The order changes from round to round, so that neither is always the first.
      const bool first = round % 2 == 0;
      const double one = speed(self, work, epochs, first ? "0" : "5");
      const double other = speed(self, work, epochs, first ? "5" : "0");
      ratios.push_back(first ? other / one : one / other);
    }
    const double ratio = median(ratios);
    const Interval sure = median_interval(ratios);
    fmt::print("{:<4} {:>8.4f}   ({:.4f} to {:.4f} with 95 %)\n", work, ratio, sure.low, sure.high);
    json[work] = {{"ratio", ratio}, {"low", sure.low}, {"high", sure.high}};
  }
  return json;
}

}  // namespace lockstep::bench
