// One program a rank on this host: started together, watched, and ended together when one fails.
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
  std::vector<process::Environment> environments;  // one a rank of this host
  int first_rank = 0;                              // of this host
  // stdout.log and stderr.log of each rank are written to rank<N>/ of this folder.
  std::optional<std::filesystem::path> log_dir;
  // Which of standard output (0) and error (1) are written there.
  std::array<bool, 2> logged = {true, true};
  bool append_logs = false;  // a restart goes on in the files of the attempt before
  // Gets the lines that a rank prints, as they come, with 0 for standard output and 1 for error.
  std::function<void(int rank, std::size_t stream, const std::vector<std::string>& lines)> on_lines;
  std::chrono::milliseconds grace{1500};             // from being asked to end to being killed
  std::chrono::milliseconds interrupt_grace{30000};  // likewise, where the user interrupts
};

struct RankEnd {
  int rank = 0;
  process::ChildEnd end;
  bool stopped = false;    // it was told to, because of somebody else
  bool suspended = false;  // a signal had stopped it when another rank failed
  double seconds = 0;      // from the start
  std::vector<std::string> last_lines;
};

struct ProgramsEnd {
  std::vector<RankEnd> ranks;                // in their order
  std::optional<std::size_t> first_failure;  // index of who failed first, and so on its own account
  int interrupted = 0;                       // the signal that the user sent; 0: none
};

// Runs them until all have ended. SIGINT, SIGTERM and SIGHUP to this process go on to them. When
// `stop_fd` (-1: none) becomes readable, they are ended as if one had failed. Throws WorkerError
// where one cannot be started.
ProgramsEnd run_programs(const ProgramsOptions& options, OrphanReaper& reaper, int stop_fd = -1);

}  // namespace lockstep::launcher
