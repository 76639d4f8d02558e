// Shared by the measurements of loaders: a pass over the samples, speeds, and PyTorch's side.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/contestant.h"
#include "bench/loading.h"
#include "bench/median.h"
#include "lockstep/base/error.h"

namespace lockstep::bench {

// One pass over the samples. The sums show that both sides have read the same ones.
struct Pass {
  double samples_per_second = 0;
  std::int64_t samples = 0;
  double sum = 0;   // of a number that each sample has
  double mean = 0;  // of pixels, which depend on random crops
};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// PyTorch's DataLoader, in a process of its own. `kind` is images or rows.
inline Pass run_dataloader(const LoadingOptions& options, const std::string& kind,
                           const std::filesystem::path& files, int workers) {
  const Finished finished =
      run_processes({.commands = {{options.python, LOCKSTEP_BENCH_FOLDER "/loading.py", kind,
                                   files.string(), std::to_string(workers)}}});
  const auto json = nlohmann::json::parse(finished.output);
  return {.samples_per_second = json.at("samples_per_second"),
          .samples = json.at("samples"),
          .sum = json.at("sum"),
          .mean = json.at("mean")};
}

// Samples per second of one side, by its number of threads or processes.
class Speeds {
 public:
  void add(int number, const Pass& pass) { all_[number].push_back(pass.samples_per_second); }

  // The number with the highest median, and that median.
  std::pair<int, double> best() const {
    std::pair<int, double> best{0, 0};
    for (const auto& [number, speeds] : all_) {
      if (median(speeds) > best.second) best = {number, median(speeds)};
    }
    return best;
  }

  nlohmann::json json() const {
    nlohmann::json json;
    for (const auto& [number, speeds] : all_) json[std::to_string(number)] = median(speeds);
    return json;
  }

  void print(const std::string& side, const std::string& what) const {
    for (const auto& [number, speeds] : all_) {
      fmt::print("{:<10} {:>2} {:<10} {:>14.0f} ±{:>2.0f}%\n", side, number, what, median(speeds),
                 50 * spread(speeds));
    }
  }

 private:
  std::map<int, std::vector<double>> all_;
};

}  // namespace lockstep::bench
