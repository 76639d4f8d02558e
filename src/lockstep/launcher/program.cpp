#include "lockstep/launcher/program.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::launcher {
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
  int output, error, failure;
  int inherited;  // -1: none
};

// Replaces standard input by an empty one. It is closed first, because there may be no other free
// descriptor.
bool take_empty_input() {
  ::close(STDIN_FILENO);
  return ::open("/dev/null", O_RDONLY) == STDIN_FILENO;
}

// Runs between fork and exec: nothing here allocates, locks or throws.
[[noreturn]] void become(char* const* command, char* const* environment, const Streams& streams,
                         pid_t parent) noexcept {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before prctl() was called
  if (take_empty_input() && ::dup2(streams.output, STDOUT_FILENO) >= 0 &&
      ::dup2(streams.error, STDERR_FILENO) >= 0) {
    if (streams.inherited >= 0) ::fcntl(streams.inherited, F_SETFD, 0);  // not closed on exec
    ::signal(SIGCHLD, SIG_DFL);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::execvpe(command[0], command, environment);
  }
  const int error = errno;
  [[maybe_unused]] const auto written = ::write(streams.failure, &error, sizeof error);
  ::_exit(127);
}

int shell_code_of(int cause) {
  return cause == ENOENT ? 127 : 126;
}

}  // namespace

Program::Program(const ProgramOptions& options) {
  std::vector<std::string> words = options.command;
  if (words.empty()) throw WorkerError("expected a program to start, got none");
  std::vector<std::string> variables;
  for (const auto& [name, value] : options.environment) variables.push_back(name + "=" + value);
  const auto command = pointers(words);
  const auto environment = pointers(variables);
  Pipe output, error, failure;
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw WorkerError("{}: cannot fork: {}", words[0], std::strerror(errno));
  if (pid == 0) {
    become(command.data(), environment.data(),
           {output.writing.get(), error.writing.get(), failure.writing.get(), options.inherited_fd},
           parent);
  }
  ::setpgid(pid, pid);  // in both processes, because either may run first
  process_ = process::ChildProcess(pid);
  failure.writing = FileDescriptor();
  int cause = 0;
  ssize_t size = 0;
  while ((size = ::read(failure.reading.get(), &cause, sizeof cause)) < 0 && errno == EINTR) {
  }
  if (size == sizeof cause) {
    throw StartError(fmt::format("{}: cannot be started: {}", words[0], std::strerror(cause)),
                     shell_code_of(cause));
  }
  outputs_[0] = std::move(output.reading);
  outputs_[1] = std::move(error.reading);
  for (const auto& fd : outputs_) ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
}

Program::~Program() {
  if (!process_) return;
  send(SIGKILL);
  reap();
}

process::ChildEnd Program::reap() {
  // The group is killed while its leader is a zombie, so that no other group can have its number.
  send(SIGKILL);
  return process_.reap();
}

}  // namespace lockstep::launcher
