#include "lockstep/process/process.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::process {
namespace {

// Where the kernel finds the command line and the other parts of this process's memory, as
// /proc/self/stat lists them. False if it does not.
bool find_memory_map(prctl_mm_map& map) {
  char text[1024] = {};
  const FileDescriptor file(::open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
  if (!file || ::read(file.get(), text, sizeof text - 1) <= 0) return false;
  const char* const end_of_name = std::strrchr(text, ')');
  if (end_of_name == nullptr) return false;
  // Fields 26 to 28 are the code and the stack, 45 to 51 the data and the arguments.
  unsigned long long code[3] = {};
  unsigned long long rest[7] = {};
  if (std::sscanf(end_of_name + 1,
                  " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                  "%*s %*s %*s %*s %llu %llu %llu %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                  "%*s %*s %*s %*s %llu %llu %llu %llu %llu %llu %llu",
                  &code[0], &code[1], &code[2], &rest[0], &rest[1], &rest[2], &rest[3], &rest[4],
                  &rest[5], &rest[6]) != 10) {
    return false;
  }
  map = {};
  map.start_code = code[0];
  map.end_code = code[1];
  map.start_stack = code[2];
  map.start_data = rest[0];
  map.end_data = rest[1];
  map.start_brk = rest[2];
  map.brk = reinterpret_cast<std::uintptr_t>(::sbrk(0));
  map.arg_start = rest[3];
  map.arg_end = rest[4];
  map.env_start = rest[5];
  map.env_end = rest[6];
  map.exe_fd = static_cast<std::uint32_t>(-1);  // keeps the executable
  return map.arg_start != 0 && map.arg_end > map.arg_start;
}

void set_command_line(std::string_view name) {
  prctl_mm_map map{};
  if (!find_memory_map(map)) return;
  // The words that the program was started with. Static because a process that has a new name may
  // be forked and named again.
  static std::span<const char> original(reinterpret_cast<const char*>(map.arg_start),
                                        map.arg_end - map.arg_start);
  const std::size_t size = name.size() + 1 + original.size();
  void* const room =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return;
  char* const text = static_cast<char*>(room);
  std::memcpy(text, name.data(), name.size());
  std::memcpy(text + name.size() + 1, original.data(), original.size());
  map.arg_start = reinterpret_cast<std::uintptr_t>(text);
  map.arg_end = map.arg_start + size;
  // The kernel reads the memory for as long as the process lives, so it is not freed.
  if (::prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0) == 0) return;
  // The kernel was built without this call: write over the words, as far as the name fits. They
  // are in memory that can be written, and the program has read them.
  ::munmap(room, size);
  char* const words = const_cast<char*>(original.data());
  std::memset(words, 0, original.size());
  std::memcpy(words, name.data(), std::min(name.size(), original.size() - 1));
}

}  // namespace

void set_process_name(const char* name) {
  ::prctl(PR_SET_NAME, name);
  set_command_line(name);
}

std::optional<ProcessStatus> process_status(pid_t pid) {
  const std::string path = fmt::format("/proc/{}/stat", pid);
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return std::nullopt;
  char bytes[1024] = {};
  const std::size_t length = std::fread(bytes, 1, sizeof bytes - 1, file);
  std::fclose(file);
  // The second field is the program's name in parentheses, which may contain any character. The
  // third is the state, the twenty-second the start time.
  const std::string_view text(bytes, length);
  const std::size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string_view::npos) return std::nullopt;
  ProcessStatus status;
  unsigned long long start_time = 0;
  if (std::sscanf(bytes + end_of_name + 1,
                  " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                  "%llu",
                  &status.state, &start_time) != 2) {
    return std::nullopt;
  }
  status.start_time = start_time;
  return status;
}

FileDescriptor open_pidfd(pid_t pid) {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool has_ended(const FileDescriptor& pidfd) {
  pollfd look{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&look, 1, 0) == 1;
}

bool send_signal(const FileDescriptor& pidfd, int signal) {
  return ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0;
}

PeerProcess::PeerProcess(pid_t pid, std::uint64_t start_time)
    : pid_(pid), start_time_(start_time), pidfd_(open_pidfd(pid)) {
  was_gone_ = !pidfd_ && errno == ESRCH;
  // Another process may have got the pid before this object was made.
  const auto status = process_status(pid);
  if (status && !is_same(*status)) was_gone_ = true;
}

bool PeerProcess::is_same(const ProcessStatus& status) const {
  return start_time_ == 0 || status.start_time == start_time_;
}

bool PeerProcess::has_ended() const {
  if (was_gone_) return true;
  if (pidfd_) return process::has_ended(pidfd_);
  if (const auto status = process_status(pid_)) {
    return status->state == 'Z' || status->state == 'X' || !is_same(*status);
  }
  return ::kill(pid_, 0) != 0 && errno == ESRCH;
}

bool PeerProcess::is_stopped() const {
  const auto status = process_status(pid_);
  return !was_gone_ && status && is_same(*status) && status->state == 'T';
}

void PeerProcess::send(int signal) const {
  if (has_ended()) return;
  if (pidfd_ && send_signal(pidfd_, signal)) return;
  // The kernel or a seccomp profile does not allow the pidfd calls. kill() is safe enough: the
  // process was alive a moment ago.
  if (!pidfd_ || errno == ENOSYS || errno == EPERM) ::kill(pid_, signal);
}

}  // namespace lockstep::process
