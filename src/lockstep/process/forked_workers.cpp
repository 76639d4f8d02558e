#include "lockstep/process/forked_workers.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/process/background.h"
#include "lockstep/process/child_process.h"
#include "lockstep/process/interrupt.h"
#include "lockstep/process/process.h"

namespace lockstep::process {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Time from the failure of a group until workers that have not ended are killed.
constexpr milliseconds kGracePeriod(1000);
// Time for a worker to start.
constexpr milliseconds kStartTimeout(20'000);

std::string describe_end(const ChildEnd& end) {
  if (!end.known) {
    return "its process ended before its work was done; its exit status is not known, because this "
           "program ignores SIGCHLD or waits for all of its children";
  }
  if (end.signal == 0) return fmt::format("its process ended with code {}", end.exit_code);
  return fmt::format("its process was killed by signal {} ({})", end.signal, strsignal(end.signal));
}

// A process that this one forked. The destructor kills it.
class ForkedWorker {
 public:
  ForkedWorker(const HostGroup& host_group, int rank, pid_t pid, FileDescriptor output)
      : rank_(rank), name_(host_group.name(rank)), process_(pid), output_(std::move(output)) {}

  int rank() const { return rank_; }
  bool is_reaped() const { return !process_; }
  void kill() const { process_.send(SIGKILL); }
  // Called in a process that was forked later: this worker is its sibling, not its child.
  void disown() { process_.disown(); }

  int process() const { return process_.ended_fd(); }  // readable when the worker has ended
  int output() const { return output_.get(); }         // pipe with the text that it prints

  // How the worker ended. Nothing while it runs, and after the first answer.
  std::optional<ChildEnd> reap() { return process_.try_reap(); }

  // Reads what is available and calls on_line for each whole line. False if there is no more now.
  template <typename OnLine>
  bool read(const OnLine& on_line) {
    char bytes[4096];
    const auto count = ::read(output_.get(), bytes, sizeof bytes);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (count <= 0) {
      finish(on_line);
      return false;
    }
    partial_.append(bytes, static_cast<std::size_t>(count));
    std::size_t begin = 0;
    for (auto end = partial_.find('\n'); end != std::string::npos;
         end = partial_.find('\n', begin)) {
      on_line(name_, partial_.substr(begin, end - begin));
      begin = end + 1;
    }
    partial_.erase(0, begin);
    return true;
  }

  // Calls on_line for an unfinished last line and closes the pipe, even if a child of the worker
  // still has its other end open.
  template <typename OnLine>
  void finish(const OnLine& on_line) {
    if (!partial_.empty()) on_line(name_, std::exchange(partial_, {}));
    output_ = FileDescriptor();
  }

 private:
  int rank_;
  int name_;  // its rank in messages
  ChildProcess process_;
  FileDescriptor output_;
  std::string partial_;  // the beginning of a line
};

// Does not flush all files: a thread that waits for input holds the lock of its file.
void flush_output() {
  std::cout.flush();
  std::cerr.flush();
  std::clog.flush();
  std::fflush(stdout);
  std::fflush(stderr);
}

// The code that was given to end_on_failure(), or 0. It is global because it says how the process
// ends, whichever run it is in.
std::atomic<int> code_of_failure = 0;

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

int run_work(HostGroup& host_group, const ForkedWorkersOptions& options,
             const std::function<void(HostGroup&)>& work) {
  try {
    if (options.probe && !options.probe()) {
      host_group.set_state(MemberState::kUnfit);
      return 0;
    }
    host_group.join();
    work(host_group);
    host_group.set_state(MemberState::kLeft);
    return 0;
  } catch (const std::exception& error) {
    host_group.fail(host_group.rank(), message_of(error));
  } catch (...) {
    host_group.fail(host_group.rank(), "threw something that is no exception");
  }
  return 1;
}

// What a worker's process needs after the fork. It is made before the fork, so that an error is
// thrown in the caller.
struct WorkerStart {
  HostGroup& host_group;  // the worker's own view
  const ForkedWorkersOptions& options;
  const std::function<void(HostGroup&)>& work;
  pid_t caller;
};

std::thread start_thread(const std::function<void()>& body) {
  try {
    return std::thread(body);
  } catch (const std::system_error& error) {
    throw WorkerError("cannot start a thread: {}; is the number of threads limited (ulimit -u)?",
                      error.what());
  }
}

// Runs a worker's process from the fork to its end. It must not return or throw: the stack frames
// below are copies of the caller's, with the caller's catch blocks and destructors.
[[noreturn]] void live(const WorkerStart& start, FileDescriptor output) noexcept {
  int code = 1;
  try {
    const PeerProcess caller(start.caller);
    // Ctrl-C ends the caller, and this process dies with the caller.
    InterruptGuard::catch_for_good();
    const int errors = output ? print_to(std::move(output)) : STDERR_FILENO;
    start_thread([&] { code = run_work(start.host_group, start.options, start.work); }).join();
    flush_output();
    if (code != 0) end_stopped_caller(start.host_group, caller, errors);
  } catch (const std::exception& error) {
    start.host_group.fail(start.host_group.rank(), error.what());
    code = 1;
  } catch (...) {
    start.host_group.fail(start.host_group.rank(), "threw something that is no exception");
    code = 1;
  }
  // Not exit(): only the caller runs what the program does at its end.
  ::_exit(code);
}

pid_t fork_process(bool bare) {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
  if (bare) return ::_Fork();
#endif
  (void)bare;
  return ::fork();
}

std::vector<int> names_of(const ForkedWorkersOptions& options) {
  std::vector<int> names(static_cast<std::size_t>(options.size));
  std::iota(names.begin(), names.end(), options.first_rank);
  return names;
}

}  // namespace

// Watches the workers in a thread of the caller.
class ForkedWorkers::Supervisor {
 public:
  Supervisor(HostGroup& host_group, std::vector<ForkedWorker> workers,
             const ForkedWorkersOptions& options)
      : host_group_(host_group),
        workers_(std::move(workers)),
        timeout_(options.timeout),
        on_line_(options.on_line),
        thread_(start_thread([this] { watch(); })) {}

  ~Supervisor() {
    ending_ = true;
    wakeup_.wake();
    thread_.join();
  }

  void join() {
    joining_ = true;
    std::unique_lock lock(mutex_);
    all_gone_.wait(lock, [this] { return gone_; });
  }

 private:
  void watch() {
    enter_background_thread("lockstep watch");
    std::optional<Clock::time_point> failed_at;
    std::chrono::nanoseconds joining{0};
    while (true) {
      const milliseconds limit(failed_at ? 20 : 100);
      const auto start = Clock::now();
      look(limit);
      if (std::ranges::all_of(workers_, &ForkedWorker::is_reaped)) break;
      // Each turn counts at most twice its limit: if this process was stopped itself (Ctrl-Z), that
      // time must not count against the workers.
      if (joining_) joining += std::min<std::chrono::nanoseconds>(Clock::now() - start, 2 * limit);
      if (joining > timeout_) report_late_worker();
      if (!failed_at && (host_group_.failure() || ending_)) failed_at = Clock::now();
      if (failed_at && (ending_ || Clock::now() - *failed_at > kGracePeriod)) {
        announce();
        for (const ForkedWorker& worker : workers_) worker.kill();
      }
    }
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
    }
    all_gone_.notify_all();
    end_stuck_caller();
  }

  // Waits until a worker prints something or ends, and handles it.
  void look(milliseconds limit) {
    std::vector<pollfd> polls{{.fd = wakeup_.fd(), .events = POLLIN, .revents = 0}};
    for (const ForkedWorker& worker : workers_) {
      polls.push_back({.fd = worker.process(), .events = POLLIN, .revents = 0});
      polls.push_back({.fd = worker.output(), .events = POLLIN, .revents = 0});
    }
    if (::poll(polls.data(), polls.size(), static_cast<int>(limit.count())) < 0) return;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      if (polls[2 * i + 2].revents != 0) read(workers_[i]);
      // A worker without a pidfd is checked every time.
      if (polls[2 * i + 1].revents != 0 || workers_[i].process() < 0) reap(workers_[i]);
    }
    if (polls[0].revents != 0) wakeup_.clear();
  }

  void reap(ForkedWorker& worker) {
    const auto end = worker.reap();
    if (!end) return;
    while (read(worker)) {
    }
    if (worker.output() >= 0) worker.finish(on_line_);
    // The state that the worker wrote itself is right also if its exit status is not known.
    const MemberState state = host_group_.state(worker.rank());
    if (ending_ || state == MemberState::kUnfit || state == MemberState::kLeft) return;
    host_group_.fail(worker.rank(), describe_end(*end));
  }

  bool read(ForkedWorker& worker) { return worker.output() >= 0 && worker.read(on_line_); }

  void report_late_worker() {
    for (const ForkedWorker& worker : workers_) {
      if (worker.is_reaped()) continue;
      host_group_.fail(worker.rank(), fmt::format("did not end within {} after rank {} was done",
                                                  format_duration(timeout_), host_group_.name(0)));
      return;
    }
  }

  // Prints the failure now. The caller also reports it, but may be in a long batch until then.
  void announce() {
    const auto failure = host_group_.failure();
    if (!failure || failure->rank == 0 || announced_ || ending_ || joining_) return;
    announced_ = true;
    std::fprintf(stderr, "lockstep: %s; the run ends\n",
                 describe_failure(host_group_.name(failure->rank),
                                  host_group_.progress(failure->rank), failure->reason)
                     .c_str());
  }

  // A caller that hangs in a batch would keep a failed run alive for ever. So its process is ended
  // when the grace period (with end_on_failure()) or the time limit is over.
  void end_stuck_caller() {
    const auto start = Clock::now();
    while (!ending_ && host_group_.failure()) {
      if (Clock::now() - start > kGracePeriod) announce();
      // A caller that failed itself is ending already, and its own error says more.
      const bool is_others = host_group_.failure() && host_group_.failure()->rank != 0;
      if (code_of_failure != 0 && is_others && Clock::now() - start > kGracePeriod / 2) {
        announce();
        flush_output();
        ::_exit(code_of_failure);
      }
      if (Clock::now() - start > timeout_) {
        std::fprintf(stderr,
                     "lockstep: rank %d did not end within the time limit after the failure\n",
                     host_group_.name(0));
        std::fflush(stderr);
        ::_exit(1);
      }
      look(milliseconds(100));
    }
  }

  HostGroup& host_group_;
  std::vector<ForkedWorker> workers_;
  milliseconds timeout_;
  std::function<void(int, const std::string&)> on_line_;
  Wakeup wakeup_;
  std::atomic<bool> ending_ = false;
  std::atomic<bool> joining_ = false;
  bool announced_ = false;
  std::mutex mutex_;
  std::condition_variable all_gone_;
  bool gone_ = false;
  std::thread thread_;  // last: it uses all of the above
};

ForkedWorkers::ForkedWorkers(const ForkedWorkersOptions& options,
                             const std::function<void(HostGroup&)>& work) {
  if (options.size < 1) throw ConfigError("workers: expected 1 or more, got {}", options.size);
  // Autograd's threads do not exist in a forked child. Once they run here, some versions of
  // LibTorch forbid autograd in a child of fork(). _Fork() skips the handler that does so, but the
  // worker hangs with other versions. So fork() is tried first (docs/decisions/workers.md).
  if (start(options, work, /*bare=*/false)) return;
  if (start(options, work, /*bare=*/true)) return;
  throw WorkerError(
      "cannot fork {} workers: this process has started what does not survive a fork (autograd on "
      "a GPU, say); train before using it, or start one process per worker with torchrun, mpirun "
      "or srun",
      options.size - 1);
}

bool ForkedWorkers::start(const ForkedWorkersOptions& options,
                          const std::function<void(HostGroup&)>& work, bool bare) {
  const auto memory = std::make_shared<HostGroupMemory>(options.size);
  const HostGroupOptions group_options{.timeout = options.timeout, .names = names_of(options)};
  host_group_ = std::make_unique<HostGroup>(memory, group_options);
  host_group_->join();
  flush_output();  // otherwise each worker would print the buffered text again
  const pid_t caller = ::getpid();
  std::vector<ForkedWorker> workers;
  workers.reserve(static_cast<std::size_t>(options.size));
  for (int rank = 1; rank < options.size; ++rank) {
    int ends[2] = {-1, -1};
    if (options.on_line && ::pipe2(ends, O_CLOEXEC) != 0) {
      throw WorkerError("cannot make a pipe for worker {}: {}", rank, std::strerror(errno));
    }
    FileDescriptor reading(ends[0]);
    FileDescriptor writing(ends[1]);
    HostGroupOptions own_options = group_options;
    own_options.rank = rank;
    HostGroup own(memory, own_options);
    const pid_t pid = fork_process(bare);
    if (pid < 0) {
      throw WorkerError("cannot fork worker {} of {}: {}", rank, options.size,
                        std::strerror(errno));
    }
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != caller) ::_exit(1);  // the caller died before prctl() was called
      for (ForkedWorker& sibling : workers) sibling.disown();
      workers.clear();
      reading = FileDescriptor();
      live({.host_group = own, .options = options, .work = work, .caller = caller},
           std::move(writing));
    }
    if (reading) ::fcntl(reading.get(), F_SETFL, O_NONBLOCK);
    workers.emplace_back(*host_group_, rank, pid, std::move(reading));
  }
  supervisor_ = std::make_unique<Supervisor>(*host_group_, std::move(workers), options);

  // Wait until each worker has joined or has found that it cannot work.
  const auto start = Clock::now();
  for (int rank = 1; rank < options.size; ++rank) {
    while (host_group_->state(rank) == MemberState::kEmpty) {
      if (host_group_->failure())
        return true;  // like a later failure: the caller gets it in meet() or join()
      if (Clock::now() - start > kStartTimeout) {
        supervisor_.reset();
        return false;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    if (host_group_->state(rank) == MemberState::kUnfit) {
      supervisor_.reset();
      return false;
    }
  }
  return true;
}

void end_on_failure(int code) {
  code_of_failure = code;
}

ForkedWorkers::~ForkedWorkers() = default;

void ForkedWorkers::join() {
  host_group_->set_state(MemberState::kLeft);
  supervisor_->join();
  host_group_->check();
}

}  // namespace lockstep::process
