#include "bench/contestant.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::bench {
namespace {

constexpr int kLookMilliseconds = 50;

struct Process {
  pid_t pid = 0;
  FileDescriptor output;
};

Process start(const std::vector<std::string>& command, pid_t group) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error("cannot make a pipe: {}", std::strerror(errno));
  FileDescriptor reading(ends[0]);
  const FileDescriptor writing(ends[1]);
  std::vector<char*> arguments;
  for (const auto& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw Error("cannot start {}: {}", command[0], std::strerror(errno));
  if (pid == 0) {
    ::setpgid(0, group);
    ::dup2(writing.get(), STDOUT_FILENO);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::setpgid(pid, group);  // parent and child both set it, because either may run first
  return {pid, std::move(reading)};
}

// Reads the process group from /proc. The fields after the name are state, parent, process group.
pid_t group_of(const std::filesystem::path& process) {
  std::ifstream file(process / "stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  char state = 0;
  int parent = 0;
  int group = 0;
  if (std::sscanf(text.c_str() + name_end + 1, " %c %d %d", &state, &parent, &group) != 3) return 0;
  return group;
}

double proportional_bytes(const std::filesystem::path& process) {
  std::ifstream file(process / "smaps_rollup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("Pss:")) return 1024 * std::strtod(line.c_str() + 4, nullptr);
  }
  return 0;
}

double memory_of_group(pid_t group) {
  double bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (group_of(entry.path()) == group) bytes += proportional_bytes(entry.path());
  }
  return bytes;
}

}  // namespace

Finished run_processes(const RunOptions& options) {
  Finished finished;
  finished.started =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  std::vector<Process> processes;
  for (const auto& command : options.commands) {
    processes.push_back(start(command, processes.empty() ? 0 : processes[0].pid));
  }
  std::array<char, 4096> chunk;
  while (true) {
    pollfd poll{.fd = processes[0].output.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&poll, 1, options.watch_memory ? kLookMilliseconds : -1);
    if (options.watch_memory) {
      finished.peak_memory = std::max(finished.peak_memory, memory_of_group(processes[0].pid));
    }
    if (ready <= 0) continue;
    const auto count = ::read(poll.fd, chunk.data(), chunk.size());
    if (count <= 0) break;
    finished.output.append(chunk.data(), static_cast<std::size_t>(count));
  }
  for (std::size_t i = 0; i < processes.size(); ++i) {
    int status = 0;
    ::waitpid(processes[i].pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    ::kill(-processes[0].pid, SIGKILL);  // the other processes of its group
    for (std::size_t k = i + 1; k < processes.size(); ++k) ::waitpid(processes[k].pid, &status, 0);
    std::string command;
    for (const auto& word : options.commands[i]) command += word + ' ';
    throw Error("{}failed", command);
  }
  return finished;
}

}  // namespace lockstep::bench
