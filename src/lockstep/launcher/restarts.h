// Why an attempt failed, and whether another one is worth it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launcher/programs.h"
#include "lockstep/process/memory_file.h"

namespace lockstep::launcher {

// How sure it is that the rank failed by itself, and not because of another rank.
enum class Blame : int {
  kConsequence = 0,  // it ended with the exit code for "another process failed"
  kLikely = 1,       // it ended before the others, with an exit code that says nothing
  kCertain = 2,      // it was killed, was stopped, or said itself why it failed
};

// The failure that ended an attempt.
struct AttemptFailure {
  int attempt = 0;
  int rank = -1;  // -1: not a rank, but a launcher
  process::FailureKind kind = process::FailureKind::kLost;
  std::int64_t epoch = -1;  // -1: not known
  std::int64_t batch = -1;
  int shell_code = 1;  // the exit code with which the launcher ends if there is no other attempt
  Blame blame = Blame::kCertain;
  std::string how = {};  // "killed by signal 9 (Killed)", the text of an exception
};

// "rank 1 (epoch 1, batch 3): killed by signal 9 (Killed)"
std::string to_string(const AttemptFailure& failure);

// The failure that ended the attempt on this host; nothing if no rank of this host failed. A rank
// that only lost another rank is not blamed if there is a rank that failed by itself. `notes` are
// those of the host's ranks.
std::optional<AttemptFailure> find_cause(int attempt, const ProgramsEnd& ended,
                                         const std::vector<process::FailureNote>& notes);

struct RestartDecision {
  bool restart = false;
  std::chrono::milliseconds wait{0};  // before the next attempt
  std::string why_not = {};
};

// `failures` are those of all attempts, the last one at the end. All nodes have the same list, so
// they decide the same.
RestartDecision decide_restart(const std::vector<AttemptFailure>& failures, int max_restarts);

}  // namespace lockstep::launcher
