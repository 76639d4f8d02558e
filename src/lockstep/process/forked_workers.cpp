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

// From the failure of a group to the end of workers that do not see it.
constexpr milliseconds kGrace(1000);
// For a worker to come to life.
constexpr milliseconds kBirth(20'000);

std::string describe_end(const ChildEnd& end) {
  if (!end.known) {
    return "its process ended before its work was done; how is not known, because this program "
           "ignores SIGCHLD or waits for all of its children";
  }
  if (end.signal == 0) return fmt::format("its process ended with code {}", end.exit_code);
  return fmt::format("its process was killed by signal {} ({})", end.signal, strsignal(end.signal));
}

// A process that this one forked. It does not outlive its owner.
class ForkedWorker {
 public:
  ForkedWorker(const HostGroup& host_group, int rank, pid_t pid, FileDescriptor output)
      : rank_(rank), name_(host_group.name(rank)), process_(pid), output_(std::move(output)) {}

  int rank() const { return rank_; }
  bool is_reaped() const { return !process_; }
  void kill() const { process_.send(SIGKILL); }
  // In a process where it is a sibling.
  void disown() { process_.disown(); }

  int process() const { return process_.ended_fd(); }  // readable when it has ended
  int output() const { return output_.get(); }         // what it prints

  // How it ended, once.
  std::optional<ChildEnd> reap() { return process_.try_reap(); }

  // Hands out whole lines of what is there to read; false where there is no more now.
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

  // Hands out the rest, also where a child of the worker still has the other end.
  template <typename OnLine>
  void finish(const OnLine& on_line) {
    if (!partial_.empty()) on_line(name_, std::exchange(partial_, {}));
    output_ = FileDescriptor();
  }

 private:
  int rank_;
  int name_;  // what messages call it
  ChildProcess process_;
  FileDescriptor output_;
  std::string partial_;  // of a line
};

// Not all files: a thread that waits for input has that file locked.
void flush_output() {
  std::cout.flush();
  std::cerr.flush();
  std::clog.flush();
  std::fflush(stdout);
  std::fflush(stderr);
}

// What end_on_failure() was told, or 0.
std::atomic<int> code_of_failure = 0;

// Where the caller's errors go, also in a worker whose output goes to the caller.
int error_output = STDERR_FILENO;

// This process's output from now on, line by line.
void print_to(FileDescriptor pipe) {
  error_output = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  ::dup2(pipe.get(), STDOUT_FILENO);
  ::dup2(pipe.get(), STDERR_FILENO);
  // With a buffer of its own: glibc would go on with the old one as it was until that is full.
  static char buffer[BUFSIZ];
  std::setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
}

// A caller that is stopped for good cannot be told of a failure, and the run would never end. The
// failure may be recorded under any rank's name: only the caller's state counts.
void end_stopped_caller(const HostGroup& host_group, const PeerProcess& caller) {
  constexpr int kLooks = 20;
  for (int i = 0; i < kLooks; ++i) {
    if (!caller.is_stopped()) return;
    std::this_thread::sleep_for(kGrace / kLooks);
  }
  const auto failure = host_group.failure();
  if (!failure) return;
  const std::string reason = describe_failure(host_group.name(failure->rank),
                                              host_group.progress(failure->rank), failure->reason);
  ::dprintf(error_output, "lockstep: rank %d is stopped: %s; the run ends\n", host_group.name(0),
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

// What a worker's process needs after the fork. Made before it, where an error is the caller's.
struct WorkerStart {
  HostGroup& host_group;  // with the worker's own rank
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

// The life of a worker's process. Nothing that happens here may return to the frames below or throw
// into them: they are copies of the caller's, with its catch blocks and destructors.
[[noreturn]] void live(const WorkerStart& start, FileDescriptor output) noexcept {
  int code = 1;
  try {
    const PeerProcess caller(start.caller);
    // Ctrl-C is for the caller to die of: this process goes with it.
    InterruptGuard::catch_for_good();
    if (output) print_to(std::move(output));
    start_thread([&] { code = run_work(start.host_group, start.options, start.work); }).join();
    flush_output();
    if (code != 0) end_stopped_caller(start.host_group, caller);
  } catch (const std::exception& error) {
    start.host_group.fail(start.host_group.rank(), error.what());
    code = 1;
  } catch (...) {
    start.host_group.fail(start.host_group.rank(), "threw something that is no exception");
    code = 1;
  }
  // Not exit(): what is to be done at the end of the program is the caller's to do.
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
      // Not by the clock alone: where this process was stopped itself, nobody was late.
      if (joining_) joining += std::min<std::chrono::nanoseconds>(Clock::now() - start, 2 * limit);
      if (joining > timeout_) miss_somebody();
      if (!failed_at && (host_group_.failure() || ending_)) failed_at = Clock::now();
      if (failed_at && (ending_ || Clock::now() - *failed_at > kGrace)) {
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

  // Waits for news of any worker.
  void look(milliseconds limit) {
    std::vector<pollfd> polls{{.fd = wakeup_.fd(), .events = POLLIN, .revents = 0}};
    for (const ForkedWorker& worker : workers_) {
      polls.push_back({.fd = worker.process(), .events = POLLIN, .revents = 0});
      polls.push_back({.fd = worker.output(), .events = POLLIN, .revents = 0});
    }
    if (::poll(polls.data(), polls.size(), static_cast<int>(limit.count())) < 0) return;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      if (polls[2 * i + 2].revents != 0) read(workers_[i]);
      // Where there is no descriptor to be had, it is asked for every time.
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
    // What the worker wrote last is right also where its exit status is not known.
    const MemberState state = host_group_.state(worker.rank());
    if (ending_ || state == MemberState::kUnfit || state == MemberState::kLeft) return;
    host_group_.fail(worker.rank(), describe_end(*end));
  }

  bool read(ForkedWorker& worker) { return worker.output() >= 0 && worker.read(on_line_); }

  void miss_somebody() {
    for (const ForkedWorker& worker : workers_) {
      if (worker.is_reaped()) continue;
      host_group_.fail(worker.rank(),
                       fmt::format("the end: waited {} for it after rank {} was done",
                                   format_duration(std::chrono::duration<double>(timeout_).count()),
                                   host_group_.name(0)));
      return;
    }
  }

  // The caller says it, too, once it gets to know; but it may be in the middle of a long batch.
  void announce() {
    const auto failure = host_group_.failure();
    if (!failure || failure->rank == 0 || announced_ || ending_ || joining_) return;
    announced_ = true;
    std::fprintf(stderr, "lockstep: %s; the run ends\n",
                 describe_failure(host_group_.name(failure->rank),
                                  host_group_.progress(failure->rank), failure->reason)
                     .c_str());
  }

  // A caller that hangs in a batch would keep a failed run for ever. It had its time.
  void end_stuck_caller() {
    const auto start = Clock::now();
    while (!ending_ && host_group_.failure()) {
      if (Clock::now() - start > kGrace) announce();
      // One that failed itself is on its way, and has more to say of it.
      const bool is_others = host_group_.failure() && host_group_.failure()->rank != 0;
      if (code_of_failure != 0 && is_others && Clock::now() - start > kGrace / 2) {
        announce();
        flush_output();
        ::_exit(code_of_failure);
      }
      if (Clock::now() - start > timeout_) {
        std::fprintf(stderr, "lockstep: rank %d did not end within the time limit after that\n",
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
  std::thread thread_;  // the last: it uses the others
};

ForkedWorkers::ForkedWorkers(const ForkedWorkersOptions& options,
                             const std::function<void(HostGroup&)>& work) {
  if (options.size < 1) throw ConfigError("workers: expected 1 or more, got {}", options.size);
  // A fork leaves behind what autograd's threads were doing. Where they run, plain fork() has a
  // handler that forbids autograd to the child; a bare one has none, but works only there.
  if (start(options, work, /*bare=*/false)) return;
  if (start(options, work, /*bare=*/true)) return;
  throw WorkerError(
      "cannot fork {} workers: this process has started what does not survive a fork (autograd on "
      "a GPU, say); train before using it, or start one process a worker with torchrun, mpirun or "
      "srun",
      options.size - 1);
}

bool ForkedWorkers::start(const ForkedWorkersOptions& options,
                          const std::function<void(HostGroup&)>& work, bool bare) {
  const auto memory = std::make_shared<HostGroupMemory>(options.size);
  const HostGroupOptions group_options{.timeout = options.timeout, .names = names_of(options)};
  host_group_ = std::make_unique<HostGroup>(memory, group_options);
  host_group_->join();
  flush_output();  // or it would be printed once more by each worker
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
      if (::getppid() != caller) ::_exit(1);  // it died before it could be watched
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

  // They come, or turn out to be unfit, before anything else happens.
  const auto start = Clock::now();
  for (int rank = 1; rank < options.size; ++rank) {
    while (host_group_->state(rank) == MemberState::kEmpty) {
      if (host_group_->failure())
        return true;  // as one that fails later: the caller meets it, or joins
      if (Clock::now() - start > kBirth) {
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
