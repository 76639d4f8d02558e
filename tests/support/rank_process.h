// Ranks as real processes. Fork them before the test starts threads or opens sockets.
#pragma once

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep {

// The limit of every wait in a test. A wait that succeeds should be much shorter.
inline constexpr std::chrono::seconds kLimit{20};

// Checks the predicate again and again until it is true. False at the limit. Use it if there is
// nothing to wait on.
template <typename Predicate>
bool eventually(Predicate predicate, std::chrono::milliseconds limit = kLimit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!predicate()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// The body of a process that a test ends.
[[noreturn]] inline int wait_for_ever() {
  for (;;) ::pause();
}

// A process that runs `body`. Its exit code is what `body` returns, or 100 if it throws. The
// process is killed with this object and with the test.
class RankProcess {
 public:
  explicit RankProcess(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(2 * kLimit.count());
    int code = 100;
    // A new thread, because OpenMP in the thread that forked would wait for threads that are gone.
    std::thread([&] {
      try {
        code = body();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "process %d: %s\n", ::getpid(), error.what());
      }
    }).join();
    ::_exit(code);
  }
  ~RankProcess() {
    if (pid_ <= 0) return;
    send(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  RankProcess(RankProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

  pid_t pid() const { return pid_; }
  void send(int signal) const { ::kill(pid_, signal); }

  // The exit code, or minus the signal that ended it.
  int wait() {
    int status = 0;
    if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) {
      ADD_FAILURE() << "process " << pid_ << " does not end";
      return -1;
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

// Passes numbers from one process to others.
class NumberPipe {
 public:
  NumberPipe() {
    int ends[2];
    if (::pipe(ends) != 0) throw Error("cannot make a pipe");
    reader_ = FileDescriptor(ends[0]);
    writer_ = FileDescriptor(ends[1]);
  }

  void put(int number) const {
    if (::write(writer_.get(), &number, sizeof number) != sizeof number) throw Error("cannot put");
  }

  bool empty() const {
    pollfd poll{.fd = reader_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&poll, 1, 0) == 0;
  }

  int take() const {
    pollfd poll{.fd = reader_.get(), .events = POLLIN, .revents = 0};
    int number = 0;
    if (::poll(&poll, 1, static_cast<int>(kLimit / std::chrono::milliseconds(1))) != 1 ||
        ::read(reader_.get(), &number, sizeof number) != sizeof number) {
      throw Error("no process has put a number into the pipe");
    }
    return number;
  }

 private:
  FileDescriptor reader_;
  FileDescriptor writer_;
};

// The message of the error that `body` throws; "" if it throws none.
template <typename ErrorType, typename Body>
std::string message_of(Body body) {
  try {
    body();
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep
