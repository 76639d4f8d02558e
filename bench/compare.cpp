#include "bench/compare.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "bench/contestant.h"
#include "bench/median.h"
#include "bench/workloads.h"
#include "lockstep/base/file.h"

namespace lockstep::bench {
namespace {

constexpr int kOtherRounds = 3;      // for start and memory
constexpr double kTolerance = 2e-3;  // relative: rounding differs, and training amplifies it

struct Sample {
  double samples_per_second = 0;
  double loss = 0;
  double weights_norm = 0;
  double seconds_to_first_step = 0;
  double memory = 0;
};

class Contest {
 public:
  explicit Contest(const CompareOptions& options) : options_(options) {}

  Sample lockstep(std::string_view work, int workers, bool watch_memory = false) const {
    return run({.commands = {{options_.self, "run", std::string(work), "--workers",
                              std::to_string(workers)}},
                .watch_memory = watch_memory});
  }

  // way: plain, ddp or flat.
  Sample pytorch(std::string_view work, int workers, const std::string& way,
                 bool watch_memory = false) const {
    const TemporaryDirectory folder;
    RunOptions run_options{.commands = {}, .watch_memory = watch_memory};
    for (int rank = 0; rank < workers; ++rank) {
      run_options.commands.push_back({options_.python, LOCKSTEP_BENCH_FOLDER "/pytorch.py",
                                      std::string(work), std::to_string(rank),
                                      std::to_string(workers), folder.path() / "store", way});
    }
    return run(run_options);
  }

  // Starts PyTorch with torchrun, as its users do. The options from --log_dir to -t avoid a bug of
  // Debian 12's torchrun.
  Sample torchrun(std::string_view work, int workers, const std::string& way) const {
    const TemporaryDirectory folder;
    return run({.commands = {{options_.python, "-m", "torch.distributed.run", "--standalone",
                              "--nproc_per_node", std::to_string(workers), "--log_dir",
                              folder.path() / "logs", "-r", "0:1,1:1", "-t", "0:1,1:1",
                              LOCKSTEP_BENCH_FOLDER "/pytorch.py", std::string(work), "env", "env",
                              folder.path() / "store", way}}});
  }

 private:
  static Sample run(const RunOptions& options) {
    const Finished finished = run_processes(options);
    // torchrun puts the rank before every line.
    const auto begin = std::min(finished.output.find('{'), finished.output.size());
    const auto json = nlohmann::json::parse(finished.output.substr(begin));
    return {.samples_per_second = json.at("samples_per_second"),
            .loss = json.at("loss"),
            .weights_norm = json.at("weights_norm"),
            .seconds_to_first_step = json.at("first_step").get<double>() - finished.started,
            .memory = finished.peak_memory};
  }

  const CompareOptions& options_;
};

// All measurements of one workload, by contestant (lockstep, pytorch, ddp or flat) and workers.
class Measured {
 public:
  explicit Measured(const Workload& work) : work_(work) {}

  void add(const std::string& side, int workers, const Sample& sample) {
    speeds_[{side, workers}].push_back(sample.samples_per_second);
    losses_[{side, workers}] = sample.loss;
    norms_[{side, workers}] = sample.weights_norm;
  }

  // Both sides must have done the same work. A loss may not show a difference, so the weights are
  // compared, too.
  void check() const {
    check("loss", losses_);
    check("norm of all weights", norms_);
  }

  nlohmann::json print() const {
    const double ours1 = speed("lockstep", 1);
    const double ours2 = speed("lockstep", 2);
    const double theirs1 = speed("pytorch", 1);
    const std::string better = speed("ddp", 2) >= speed("flat", 2) ? "ddp" : "flat";
    const double theirs2 = speed(better, 2);
    const double best = ours2 / std::max(theirs1, theirs2);
    row(std::string(work_.name), 1, {"pytorch", 1}, "");
    row("", 2, {better, 2}, fmt::format("{:>8.2f} {:>8.2f}", best, ours2 / ours1));
    const auto spreads = [&](const char* side, const std::string& two) {
      return nlohmann::json{{"1", spread(speeds_.at({side, 1}))},
                            {"2", spread(speeds_.at({two, 2}))}};
    };
    return {
        {"what", work_.what},
        {"pytorch", {{"1", theirs1}, {"2", theirs2}}},
        {"pytorch_2", {{"way", better}, {"ddp", speed("ddp", 2)}, {"flat", speed("flat", 2)}}},
        {"lockstep", {{"1", ours1}, {"2", ours2}}},
        {"ratio", {{"1", ours1 / theirs1}, {"2", ours2 / theirs2}, {"best", best}}},
        {"scaling", ours2 / ours1},
        {"spread",
         {{"pytorch", spreads("pytorch", better)}, {"lockstep", spreads("lockstep", "lockstep")}}},
        {"loss",
         {{"pytorch", {{"1", losses_.at({"pytorch", 1})}, {"2", losses_.at({better, 2})}}},
          {"lockstep", {{"1", losses_.at({"lockstep", 1})}, {"2", losses_.at({"lockstep", 2})}}}}}};
  }

  static void print_head() {
    fmt::print("\n{:<6} {:>7} {:>20} {:>5} {:>20} {:>10} {:>8} {:>8} {:>8}\n", "", "workers",
               "pytorch samples/s", "", "lockstep samples/s", "loss", "ratio", "best", "scaling");
  }

 private:
  using Key = std::pair<std::string, int>;

  void check(std::string_view what, const std::map<Key, double>& values) const {
    for (const auto& [key, theirs] : values) {
      const double ours = values.at({"lockstep", key.second});
      if (std::abs(theirs - ours) <= kTolerance * std::abs(ours)) continue;
      throw Error("{}, {} workers: {} reached a {} of {}, lockstep of {}: not the same work",
                  work_.name, key.second, key.first, what, theirs, ours);
    }
  }

  double speed(const std::string& side, int workers) const {
    return median(speeds_.at({side, workers}));
  }

  void row(const std::string& name, int workers, const Key& theirs, const std::string& rest) const {
    const Key ours{"lockstep", workers};
    const auto cell = [&](const Key& key) {
      return fmt::format("{} ±{:>2.0f}%", with_thousands(std::llround(median(speeds_.at(key)))),
                         50 * spread(speeds_.at(key)));
    };
    fmt::print("{:<6} {:>7} {:>20} {:>5} {:>20} {:>10.5f} {:>8.2f} {}\n", name, workers,
               cell(theirs), theirs.first == "pytorch" ? "" : theirs.first, cell(ours),
               losses_.at(ours), median(speeds_.at(ours)) / median(speeds_.at(theirs)), rest);
  }

  const Workload& work_;
  std::map<Key, std::vector<double>> speeds_;
  std::map<Key, double> losses_;
  std::map<Key, double> norms_;
};

// Measurements of both sides with two workers: the time to the first step, or memory.
struct Other {
  std::vector<double> pytorch;
  std::vector<double> lockstep;

  nlohmann::json print(std::string_view name, std::string_view unit, double scale) const {
    const double theirs = median(pytorch) * scale;
    const double ours = median(lockstep) * scale;
    fmt::print("{:<14} {:>17.2f} {:<2} {:>25.2f} {:<2} {:>12.2f} of it, {:.1f} times less\n", name,
               theirs, unit, ours, unit, ours / theirs, theirs / ours);
    return {{"unit", unit},
            {"pytorch", theirs},
            {"lockstep", ours},
            {"ratio", theirs / ours},
            {"share", ours / theirs}};
  }
};

void say(std::string_view work, int round, int rounds) {
  fmt::print(stderr, "{}: round {} of {}\n", work, round + 1, rounds);
}

}  // namespace

nlohmann::json compare(const CompareOptions& options) {
  ::setenv("OMP_NUM_THREADS", "1", 1);  // all use one thread anyway; torchrun warns without it
  const Contest contest(options);
  std::map<std::string, Measured> measured;
  Other start;
  Other start_by_hand;  // without torchrun: one process per rank
  Other memory;
  int most = kOtherRounds;
  for (const Workload& work : workloads()) most = std::max(most, work.rounds);

  // Every round measures everything once, so that other load on the machine affects all alike.
  for (int round = 0; round < most; ++round) {
    for (const std::string& name : options.works) {
      if (name == "start" || name == "memory") {
        if (round >= kOtherRounds) continue;
        say(name, round, kOtherRounds);
        if (name == "start") {
          start.lockstep.push_back(contest.lockstep("A", 2).seconds_to_first_step);
          start.pytorch.push_back(contest.torchrun("A", 2, "flat").seconds_to_first_step);
          start_by_hand.lockstep.push_back(start.lockstep.back());
          start_by_hand.pytorch.push_back(contest.pytorch("A", 2, "flat").seconds_to_first_step);
        } else {
          memory.lockstep.push_back(contest.lockstep("B", 2, /*watch_memory=*/true).memory);
          memory.pytorch.push_back(contest.pytorch("B", 2, "flat", /*watch_memory=*/true).memory);
        }
        continue;
      }
      const Workload& work = workload(name);
      if (round >= work.rounds) continue;
      say(name, round, work.rounds);
      Measured& all = measured.try_emplace(name, work).first->second;
      const auto run_ours = [&] {
        for (const int workers : {1, 2}) {
          all.add("lockstep", workers, contest.lockstep(name, workers));
        }
      };
      const bool ours_first = round % 2 == 0;
      if (ours_first) run_ours();
      all.add("pytorch", 1, contest.pytorch(name, 1, "plain"));
      all.add("ddp", 2, contest.pytorch(name, 2, "ddp"));
      all.add("flat", 2, contest.pytorch(name, 2, "flat"));
      if (!ours_first) run_ours();
      all.check();
    }
  }

  Measured::print_head();
  nlohmann::json json;
  for (const std::string& name : options.works) {
    if (name == "start") {
      json[name] = start.print(name, "s", 1);
      json[name]["by_hand"] = start_by_hand.print(" (no torchrun)", "s", 1);
    } else if (name == "memory") {
      json[name] = memory.print(name, "MB", 1e-6);
    } else {
      json[name] = measured.at(name).print();
    }
  }
  return json;
}

}  // namespace lockstep::bench
