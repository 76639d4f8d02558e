// Runs one program per rank on this host. They are started together, watched, and ended together
// when one fails.
#pragma once

#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launcher/orphan_reaper.h"
#include "lockstep/launcher/program.h"
#include "lockstep/process/environment.h"

namespace lockstep::launcher {

struct ProgramsOptions {
  std::vector<std::string> command;
  std::vector<process::Environment> environments;  // one per rank of this host
  int first_rank = 0;                              // of this host
  // If set, stdout.log and stderr.log of each rank are written to rank<N>/ in this folder.
  std::optional<std::filesystem::path> log_dir;
  // Which of standard output (0) and error (1) are written there.
  std::array<bool, 2> logged = {true, true};
  bool append_logs = false;  // a restart appends to the files of the attempt before
  // Receives the lines that a rank prints, as they arrive; stream 0 is standard output, 1 is error.
  std::function<void(int rank, std::size_t stream, const std::vector<std::string>& lines)> on_lines;
  std::function<void()> on_started = [] {};          // called when all ranks were started
  int inherited_fd = -1;                             // a descriptor that the ranks get; -1: none
  std::chrono::milliseconds grace{1500};             // from SIGTERM to SIGKILL
  std::chrono::milliseconds interrupt_grace{30000};  // the same, if the user interrupts the run
  // How long ranks may be stopped by a signal (SIGSTOP) when all other ranks have ended well.
  std::chrono::milliseconds stopped_grace{300000};
  // Whether the ranks of all other hosts have ended well. Empty: there are no other hosts, or it is
  // not known.
  std::function<bool()> others_ended = {};
};

struct RankEnd {
  int rank = 0;
  process::ChildEnd end;
  bool stopped = false;  // all ranks had been told to end before this one ended
  // It was stopped by a signal (SIGSTOP) when another rank failed, or when all others were done.
  bool suspended = false;
  double seconds = 0;                               // from the start
  std::chrono::steady_clock::time_point time = {};  // when it was noticed that it had ended
  std::vector<std::string> last_lines;
};

struct ProgramsEnd {
  std::vector<RankEnd> ranks = {};                // in the order of the ranks
  std::optional<std::size_t> first_failure = {};  // index of the rank that failed first, if one did
  int interrupted = 0;                            // the signal that the user sent; 0: none
  // When the first failure was noticed here, or the stop descriptor was readable.
  std::optional<std::chrono::steady_clock::time_point> failed = {};
};

// Runs the programs until all have ended. A rank that a signal has stopped when another rank fails
// is killed at once. If all other ranks have ended well, no rank waits for a stopped one, and
// without this it would keep the run for ever: it is killed after `stopped_grace`. A rank that
// still runs then is not disturbed: it may save a model, for example. SIGINT, SIGTERM and SIGHUP to
// this process are sent on to them. When `stop_fd` (-1: none) becomes readable, they are ended in
// the same way as after a failure. Throws WorkerError if a program cannot be started.
ProgramsEnd run_programs(const ProgramsOptions& options, OrphanReaper& reaper, int stop_fd = -1);

}  // namespace lockstep::launcher
