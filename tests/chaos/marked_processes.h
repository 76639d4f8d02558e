// The processes of a run. They have a mark in their environment, which their children inherit.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep::chaos {

inline constexpr char kMarkVariable[] = "CHAOS_MARK";

struct MarkedProcess {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';  // of /proc/PID/stat
  std::string name;  // /proc/PID/comm, at most 15 characters
  int rank = -1;     // RANK in its environment, -1 without one
};

// Those that have not ended; a zombie has.
std::vector<MarkedProcess> marked_processes(const std::string& mark);

// The entries of a folder of /proc. Empty if the process has ended meanwhile.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

// For a report: names, states, command lines, and where each thread waits.
std::string describe(const std::vector<MarkedProcess>& processes);

// Kills them and waits until they are gone, at most some seconds.
void kill_marked(const std::string& mark);

}  // namespace lockstep::chaos
