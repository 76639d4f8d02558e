#include "lockstep/launcher/orphan_reaper.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::launcher {
namespace {

// More ranks than a host can have.
constexpr std::size_t kMostGroups = 4096;

// Runs in the forked process: nothing here allocates, locks or throws.
[[noreturn]] void keep_watch(int pipe) noexcept {
  ::setsid();
  ::prctl(PR_SET_NAME, "lockstep-reaper");
  for (const int ignored : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(ignored, SIG_IGN);
  // Closes the launcher's output here, so that a reader of it sees its end when the launcher ends.
  const int nothing = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) ::dup2(nothing, fd);

  std::array<pid_t, kMostGroups> groups = {};
  for (;;) {
    pid_t message = 0;
    const ssize_t size = ::read(pipe, &message, sizeof message);
    if (size < 0 && errno == EINTR) continue;
    if (size != sizeof message) break;
    const pid_t wanted = message > 0 ? 0 : -message;  // a free entry, or the group to forget
    for (pid_t& group : groups) {
      if (group != wanted) continue;
      group = message > 0 ? message : 0;
      break;
    }
  }
  for (const pid_t group : groups) {
    if (group > 0) ::kill(-group, SIGKILL);
  }
  ::_exit(0);
}

}  // namespace

OrphanReaper::OrphanReaper() {
  // If a standard stream is closed, the pipe would get its number, and keep_watch() would close it.
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
  }
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error("cannot make a pipe: {}", std::strerror(errno));
  const FileDescriptor reading(ends[0]);
  pipe_ = FileDescriptor(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) throw Error("cannot fork: {}", std::strerror(errno));
  if (pid == 0) {
    ::close(ends[1]);
    keep_watch(ends[0]);
  }
  process_ = process::ChildProcess(pid);
}

OrphanReaper::~OrphanReaper() {
  pipe_ = FileDescriptor();
  process_.reap();
}

void OrphanReaper::watch(pid_t group) {
  tell(group);
}

void OrphanReaper::forget(pid_t group) {
  tell(-group);
}

void OrphanReaper::tell(pid_t message) const {
  // If the orphan reaper itself was killed, the write fails and is ignored: the ranks still die
  // with this process.
  sigset_t pipe, before;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
  while (::write(pipe_.get(), &message, sizeof message) < 0 && errno == EINTR) {
  }
  const timespec now{};
  ::sigtimedwait(&pipe, nullptr, &now);  // removes the SIGPIPE that the write may have caused
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace lockstep::launcher
