#include "lockstep/launch/program.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

struct Pipe {
  FileDescriptor reading;
  FileDescriptor writing;

  Pipe() {
    std::array<int, 2> ends = {};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw WorkerError("cannot make a pipe: {}", std::strerror(errno));
    }
    reading = FileDescriptor(ends[0]);
    writing = FileDescriptor(ends[1]);
  }
};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

struct Streams {
  int input, output, error, failure;
};

// Between fork and exec: nothing here allocates or locks.
[[noreturn]] void become(char* const* command, char* const* environment, const Streams& streams,
                         pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it died before the signal was asked for
  ::dup2(streams.input, STDIN_FILENO);
  ::dup2(streams.output, STDOUT_FILENO);
  ::dup2(streams.error, STDERR_FILENO);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvpe(command[0], command, environment);
  const int error = errno;
  [[maybe_unused]] const auto written = ::write(streams.failure, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

std::string to_string(const ProgramEnd& end) {
  if (end.signal != 0) {
    return fmt::format("killed by signal {} ({})", end.signal, ::strsignal(end.signal));
  }
  return end.exit_code == 0 ? "ended well" : fmt::format("exit code {}", end.exit_code);
}

Program::Program(const ProgramOptions& options) {
  std::vector<std::string> words = options.command;
  if (words.empty()) throw WorkerError("expected a program to start, got none");
  std::vector<std::string> variables;
  for (const auto& [name, value] : options.environment) variables.push_back(name + "=" + value);
  const auto command = pointers(words);
  const auto environment = pointers(variables);
  Pipe output, error, failure;
  const FileDescriptor input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw WorkerError("{}: cannot fork: {}", words[0], std::strerror(errno));
  if (pid_ == 0) {
    become(command.data(), environment.data(),
           {input.get(), output.writing.get(), error.writing.get(), failure.writing.get()}, parent);
  }
  ::setpgid(pid_, pid_);  // here, too: whoever is first
  process_ = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  failure.writing = FileDescriptor();
  int cause = 0;
  ssize_t size = 0;
  while ((size = ::read(failure.reading.get(), &cause, sizeof cause)) < 0 && errno == EINTR) {
  }
  if (size == sizeof cause) {
    reap();
    throw WorkerError("{}: cannot be started: {}", words[0], std::strerror(cause));
  }
  outputs_[0] = std::move(output.reading);
  outputs_[1] = std::move(error.reading);
  for (const auto& fd : outputs_) ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
}

Program::~Program() {
  if (pid_ < 0 || reaped_) return;
  send(SIGKILL);
  reap();
}

void Program::send(int signal) const {
  if (!reaped_) ::kill(-pid_, signal);
}

ProgramEnd Program::reap() {
  siginfo_t info{};
  // The zombie stays until its group is dead, so that the number cannot be another's by then.
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  ::kill(-pid_, SIGKILL);
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  if (info.si_code == CLD_EXITED) return {.exit_code = info.si_status};
  return {.exit_code = 0, .signal = info.si_status};
}

}  // namespace lockstep::launch
