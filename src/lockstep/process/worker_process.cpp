#include "lockstep/process/worker_process.h"

#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/process/interrupt.h"
#include "lockstep/process/process.h"

namespace lockstep::process {
namespace {

// Sends this process's output to the pipe from now on, line by line. Returns a descriptor of the
// standard error that it had before, which is the caller's.
int print_to(FileDescriptor pipe) {
  const int before = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  ::dup2(pipe.get(), STDOUT_FILENO);
  ::dup2(pipe.get(), STDERR_FILENO);
  // The new mode needs a new buffer: glibc would use the old one in the old mode until it is full.
  // The buffer is static because stdout uses it until the process ends.
  static char buffer[BUFSIZ];
  std::setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
  return before;
}

// A caller that stays stopped (SIGSTOP) cannot react to a failure, and the run would never end. So
// a worker kills it. Only the caller's state counts, not which rank the failure names. `errors` is
// the caller's standard error.
void end_stopped_caller(const HostGroup& host_group, const PeerProcess& caller, int errors) {
  constexpr int kChecks = 20;
  for (int i = 0; i < kChecks; ++i) {
    if (!caller.is_stopped()) return;
    std::this_thread::sleep_for(kGracePeriod / kChecks);
  }
  const auto failure = host_group.failure();
  if (!failure) return;
  const std::string reason = describe_failure(host_group.name(failure->rank),
                                              host_group.progress(failure->rank), failure->reason);
  ::dprintf(errors, "lockstep: rank %d is stopped: %s; the run ends\n", host_group.name(0),
            reason.c_str());
  caller.send(SIGKILL);
}

int run_work(const WorkerStart& start) {
  HostGroup& host_group = start.host_group;
  try {
    if (start.probe && !start.probe()) {
      host_group.set_state(MemberState::kUnfit);
      return 0;
    }
    host_group.join();
    start.work(host_group);
    host_group.set_state(MemberState::kLeft);
    return 0;
  } catch (const std::exception& error) {
    host_group.fail(host_group.rank(), message_of(error), failure_kind(error));
  } catch (...) {
    host_group.fail(host_group.rank(), "threw something that is no exception");
  }
  return 1;
}

}  // namespace

// Does not flush all files: a thread that waits for input holds the lock of its file.
void flush_output() {
  std::cout.flush();
  std::cerr.flush();
  std::clog.flush();
  std::fflush(stdout);
  std::fflush(stderr);
}

std::thread start_thread(const std::function<void()>& body) {
  try {
    return std::thread(body);
  } catch (const std::system_error& error) {
    throw WorkerError("cannot start a thread: {}; is the number of threads limited (ulimit -u)?",
                      error.what());
  }
}

pid_t fork_process(bool bare) {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
  if (bare) return ::_Fork();
#endif
  (void)bare;
  return ::fork();
}

void die_with_parent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it died before prctl() was called
}

void run_worker_process(const WorkerStart& start, FileDescriptor output) noexcept {
  int code = 1;
  HostGroup& host_group = start.host_group;
  try {
    const PeerProcess caller(start.caller);
    // Ctrl-C ends the caller, and this process dies with the caller.
    InterruptGuard::catch_for_good();
    set_process_name(fmt::format("lockstep-rank-{}", host_group.name(host_group.rank())).c_str());
    const int errors = output ? print_to(std::move(output)) : STDERR_FILENO;
    start_thread([&] { code = run_work(start); }).join();
    flush_output();
    if (code != 0) end_stopped_caller(host_group, caller, errors);
  } catch (const std::exception& error) {
    host_group.fail(host_group.rank(), error.what(), failure_kind(error));
    code = 1;
  } catch (...) {
    host_group.fail(host_group.rank(), "threw something that is no exception");
    code = 1;
  }
  // Not exit(): only the caller runs what the program does at its end.
  ::_exit(code);
}

}  // namespace lockstep::process
