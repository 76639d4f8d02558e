#include "lockstep/process/forked_workers.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/process/background.h"
#include "lockstep/process/child_process.h"
#include "lockstep/process/worker_process.h"

namespace lockstep::process {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

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

// The code that was given to end_on_failure(), or 0. It is global because it says how the process
// ends, whichever run it is in.
std::atomic<int> code_of_failure = 0;

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
        recovers_(options.recovers),
        thread_(start_thread([this] { watch(); })) {}

  ~Supervisor() {
    ending_ = true;
    wakeup_.wake();
    thread_.join();
  }

  void join() {
    joining_ = true;
    wait_for_all();
  }

  void end() {
    ending_ = true;
    wakeup_.wake();
    wait_for_all();
  }

 private:
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    all_gone_.wait(lock, [this] { return gone_; });
  }

  // If the caller makes workers anew, those that are left need no time to end well.
  milliseconds grace_period() const { return recovers_ ? kGracePeriod / 10 : kGracePeriod; }

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
      if (failed_at && (ending_ || Clock::now() - *failed_at > grace_period())) {
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
    host_group_.fail(worker.rank(), describe_end(*end), FailureKind::kLost);
  }

  bool read(ForkedWorker& worker) { return worker.output() >= 0 && worker.read(on_line_); }

  void report_late_worker() {
    for (const ForkedWorker& worker : workers_) {
      if (worker.is_reaped()) continue;
      host_group_.fail(worker.rank(),
                       fmt::format("did not end within {} after rank {} was done",
                                   format_duration(timeout_), host_group_.name(0)),
                       FailureKind::kHang);
      return;
    }
  }

  // Prints the failure now. The caller also reports it, but may be in a long batch until then.
  void announce() {
    const auto failure = host_group_.failure();
    if (recovers_ || !failure || failure->rank == 0 || announced_ || ending_ || joining_) return;
    announced_ = true;
    std::fprintf(stderr, "lockstep: %s; the run ends\n",
                 describe_failure(host_group_.name(failure->rank),
                                  host_group_.progress(failure->rank), failure->reason)
                     .c_str());
  }

  // A long callback of a caller that recovers is no hang: the run goes on after it.
  milliseconds limit_of_caller() const {
    const bool alone = recovers_ && host_group_.late_reason(0) == HostGroup::LateReason::kAlone;
    return alone ? HostGroup::kAloneLimits * timeout_ : timeout_;
  }

  // A caller that hangs in a batch would keep a failed run alive for ever. So its process is ended
  // when the grace period (with end_on_failure()) or the time limit is over.
  void end_stuck_caller() {
    const auto start = Clock::now();
    while (!ending_ && host_group_.failure()) {
      if (Clock::now() - start > kGracePeriod) announce();
      // A caller that failed itself is ending already, and its own error says more.
      const bool is_others = host_group_.failure() && host_group_.failure()->rank != 0;
      if (code_of_failure != 0 && !recovers_ && is_others &&
          Clock::now() - start > kGracePeriod / 2) {
        announce();
        flush_output();
        ::_exit(code_of_failure);
      }
      if (Clock::now() - start > limit_of_caller()) {
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
  bool recovers_;
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
  if (options.worker_template != nullptr && options.worker_template->is_alive() &&
      start(options, work, ForkWay::kTemplate)) {
    return;
  }
  // Autograd's threads do not exist in a forked child. Once they run here, some versions of
  // LibTorch forbid autograd in a child of fork(). _Fork() skips the handler that does so, but the
  // worker hangs with other versions. So fork() is tried first (docs/decisions/workers.md).
  if (start(options, work, ForkWay::kFork)) return;
  if (start(options, work, ForkWay::kBareFork)) return;
  throw WorkerError(
      "cannot fork {} workers: this process has started what does not survive a fork (autograd on "
      "a GPU, say); train before using it, or start one process per worker with torchrun, mpirun "
      "or srun",
      options.size - 1);
}

bool ForkedWorkers::start(const ForkedWorkersOptions& options,
                          const std::function<void(HostGroup&)>& work, ForkWay way) {
  const auto memory = std::make_shared<HostGroupMemory>(options.size);
  const HostGroupOptions group_options{.timeout = options.timeout, .names = names_of(options)};
  host_group_ = std::make_unique<HostGroup>(memory, group_options);
  host_group_->join();
  flush_output();
  const pid_t caller = ::getpid();
  std::vector<ForkedWorker> workers;
  workers.reserve(static_cast<std::size_t>(options.size));
  for (int rank = 1; rank < options.size; ++rank) {
    int ends[2] = {-1, -1};
    if (options.on_line && ::pipe2(ends, O_CLOEXEC) != 0) {
      throw ForkError(
          rank, fmt::format("cannot make a pipe for worker {}: {}", rank, std::strerror(errno)));
    }
    FileDescriptor reading(ends[0]);
    FileDescriptor writing(ends[1]);
    pid_t pid = -1;
    if (way == ForkWay::kTemplate) {
      pid = options.worker_template->fork_worker({.rank = rank,
                                                  .first_rank = options.first_rank,
                                                  .timeout = options.timeout,
                                                  .memory = memory->memory,
                                                  .output = writing});
      if (pid < 0 && errno == ESRCH) return false;
    } else {
      HostGroupOptions own_options = group_options;
      own_options.rank = rank;
      HostGroup own(memory, own_options);
      pid = fork_process(way == ForkWay::kBareFork);
      if (pid == 0) {
        die_with_parent(caller);
        for (ForkedWorker& sibling : workers) sibling.disown();
        workers.clear();
        reading = FileDescriptor();
        run_worker_process(
            {.host_group = own, .probe = options.probe, .work = work, .caller = caller},
            std::move(writing));
      }
    }
    if (pid < 0) {
      throw ForkError(rank, fmt::format("cannot fork worker {} of {}: {}", rank, options.size,
                                        std::strerror(errno)));
    }
    if (reading) ::fcntl(reading.get(), F_SETFL, O_NONBLOCK);
    workers.emplace_back(*host_group_, rank, pid, std::move(reading));
  }
  supervisor_ = std::make_unique<Supervisor>(*host_group_, std::move(workers), options);

  // Wait until each worker has joined or has found that it cannot work.
  const auto start = Clock::now();
  // The template's trial has shown that its workers can work. So one that does not start hangs.
  const auto limit =
      way == ForkWay::kTemplate ? std::min(kStartTimeout, options.timeout) : kStartTimeout;
  for (int rank = 1; rank < options.size; ++rank) {
    while (host_group_->state(rank) == MemberState::kEmpty) {
      if (host_group_->failure())
        return true;  // like a later failure: the caller gets it in meet() or join()
      if (Clock::now() - start > limit) {
        if (way == ForkWay::kTemplate) {
          host_group_->fail(rank, fmt::format("did not start within {}", format_duration(limit)),
                            FailureKind::kHang);
          return true;
        }
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

void ForkedWorkers::end_now() {
  supervisor_->end();
}

void ForkedWorkers::join() {
  host_group_->set_state(MemberState::kLeft);
  supervisor_->join();
  host_group_->check();
}

}  // namespace lockstep::process
