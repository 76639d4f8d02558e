#include "tests/chaos/marked_processes.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "lockstep/process/process.h"

namespace lockstep::chaos {
namespace fs = std::filesystem;
namespace {

// Empty if the file cannot be read, for example because the process has ended.
std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string first_line(const fs::path& path) {
  const std::string text = content(path);
  return text.substr(0, text.find('\n'));
}

// The value of a variable in the text of /proc/PID/environ.
std::optional<std::string_view> variable(std::string_view environment, std::string_view name) {
  while (!environment.empty()) {
    const std::size_t end = std::min(environment.find('\0'), environment.size());
    const std::string_view entry = environment.substr(0, end);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
    environment.remove_prefix(std::min(end + 1, environment.size()));
  }
  return std::nullopt;
}

pid_t parent_of(pid_t pid) {
  const std::string stat = content(fmt::format("/proc/{}/stat", pid));
  const std::size_t end_of_name = stat.rfind(')');
  if (end_of_name == std::string::npos || end_of_name + 4 >= stat.size()) return 0;
  return static_cast<pid_t>(std::atoi(stat.c_str() + end_of_name + 4));
}

}  // namespace

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    entries.push_back(at->path());
  }
  return entries;
}

std::vector<MarkedProcess> marked_processes(const std::string& mark) {
  std::vector<MarkedProcess> found;
  for (const fs::path& entry : entries_of("/proc")) {
    const std::string number = entry.filename().string();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment = content(entry / "environ");
    if (variable(environment, kMarkVariable) != mark) continue;
    const auto pid = static_cast<pid_t>(std::atoi(number.c_str()));
    const auto status = process::process_status(pid);
    if (!status || status->state == 'Z' || status->state == 'X') continue;
    const auto rank = variable(environment, "RANK");
    found.push_back({.pid = pid,
                     .parent = parent_of(pid),
                     .state = status->state,
                     .name = first_line(entry / "comm"),
                     .rank = rank ? std::atoi(std::string(*rank).c_str()) : -1});
  }
  std::ranges::sort(found, {}, &MarkedProcess::pid);
  return found;
}

std::string describe(const std::vector<MarkedProcess>& processes) {
  std::string text;
  for (const MarkedProcess& process : processes) {
    const fs::path folder = fmt::format("/proc/{}", process.pid);
    std::string command = content(folder / "cmdline");
    std::ranges::replace(command, '\0', ' ');
    text += fmt::format("process {} ({}, state {}, parent {}): {}\n", process.pid, process.name,
                        process.state, process.parent, command);
    for (const fs::path& thread : entries_of(folder / "task")) {
      text += fmt::format("  thread {} ({}): waits in {}, system call {}\n",
                          thread.filename().string(), first_line(thread / "comm"),
                          first_line(thread / "wchan"), first_line(thread / "syscall"));
      const std::string stack = content(thread / "stack");  // only root may read it
      std::size_t at = 0;
      while (at < stack.size()) {
        const std::size_t end = std::min(stack.find('\n', at), stack.size());
        text += "    " + stack.substr(at, end - at) + "\n";
        at = end + 1;
      }
    }
  }
  return text;
}

void kill_marked(const std::string& mark) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (std::chrono::steady_clock::now() < end) {
    const auto processes = marked_processes(mark);
    if (processes.empty()) return;
    for (const MarkedProcess& marked : processes) {
      process::PeerProcess(marked.pid).send(SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace lockstep::chaos
