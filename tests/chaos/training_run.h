// One start of a training program: its processes, its output and its folder.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/process/child_process.h"
#include "tests/chaos/marked_processes.h"
#include "tests/chaos/sandbox.h"
#include "tests/chaos/scenario.h"

namespace lockstep::chaos {

// The runs' own time limit for waits between ranks.
inline constexpr std::chrono::seconds kRunTimeout{3};

int epochs_of(TrainedProgram program);

struct TrainingRunOptions {
  std::filesystem::path programs;  // the folder of mnist, gan and lockstep
  TrainedProgram program = TrainedProgram::kMnist;
  Transport transport = Transport::kShm;
  bool restarts = true;              // with --max-restarts
  bool resume = false;               // from last.pth
  std::filesystem::path folder;      // the run's folder
  std::filesystem::path temporary;   // the programs' TMPDIR
  std::filesystem::path output;      // files with this name and .out or .err
  std::filesystem::path token_file;  // the secret of several nodes
  std::string mark;                  // of its processes
  const HostPair* hosts = nullptr;   // for several nodes
  std::filesystem::path hook = {};   // library to preload; empty: none
  std::filesystem::path page = {};   // that the library reads
  std::vector<int> cores = {};       // that the processes may use; empty: all
};

class TrainingRun {
 public:
  using Clock = std::chrono::steady_clock;

  explicit TrainingRun(const TrainingRunOptions& options);

  // The program that was started; with several nodes, the launcher of that node.
  pid_t main(std::size_t node = 0) const { return mains_.at(node); }
  std::size_t nodes() const { return mains_.size(); }

  // Whether all of the programs that were started have ended. Other processes may be left.
  bool has_ended();
  // How they ended; only after the end.
  const std::vector<process::ChildEnd>& ends() const { return ends_; }
  // Whether the run did: if one of two nodes is enough, the first one.
  bool ended_well() const;
  bool all_ended_well() const;

  double seconds() const;  // since the start
  std::vector<MarkedProcess> processes() const { return marked_processes(options_.mark); }
  // Those that are ranks of the run, apart from a caller.
  std::vector<MarkedProcess> workers() const;
  std::vector<MarkedProcess> candidates(Victim victim) const;

  // What the programs have printed.
  std::string output() const;
  // How many lines of errors, warnings and news they have printed. A line that only says that a
  // rank waits is not counted.
  std::size_t error_lines() const;

 private:
  std::vector<std::string> command(std::size_t node) const;
  std::filesystem::path output_file(std::size_t node, const char* ending) const;

  TrainingRunOptions options_;
  Clock::time_point start_;
  std::vector<process::ChildProcess> children_;
  std::vector<pid_t> mains_;
  std::vector<process::ChildEnd> ends_;
};

}  // namespace lockstep::chaos
