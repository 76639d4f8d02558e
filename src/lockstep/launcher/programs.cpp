#include "lockstep/launcher/programs.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <memory>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/launcher/signals.h"
#include "lockstep/process/process.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::launcher {
namespace {

constexpr std::size_t kLastLines = 20;
constexpr int kLastReads = 64;
constexpr std::chrono::milliseconds kSuspendedInterval(250);  // of looking for stopped ranks
constexpr std::size_t kLongestLine = 64 * 1024;  // longer lines are passed on in pieces

// One rank: its program and what the program prints.
class Rank {
 public:
  Rank(int rank, const ProgramsOptions& options, const process::Environment& environment)
      : rank_(rank),
        options_(options),
        files_(open_logs(rank, options)),
        program_({options.command, environment, options.inherited_fd}) {}

  Program& program() { return program_; }
  bool is_open(std::size_t stream) const { return open_[stream]; }
  bool is_done() const { return end_.has_value(); }
  void set_suspended() { suspended_ = true; }
  bool is_suspended() const { return suspended_; }
  void set_ended_by_itself() { ended_by_itself_ = true; }

  // Called before the program starts, so that an error with the folder stops no running program.
  static std::array<FileDescriptor, 2> open_logs(int rank, const ProgramsOptions& options) {
    std::array<FileDescriptor, 2> files;
    if (!options.log_dir) return files;
    const auto folder = *options.log_dir / fmt::format("rank{}", rank);
    make_directories(folder);
    const int mode = O_WRONLY | O_CREAT | O_CLOEXEC | (options.append_logs ? O_APPEND : O_TRUNC);
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (!options.logged[i]) continue;
      const auto path = folder / (i == 0 ? "stdout.log" : "stderr.log");
      files[i] = FileDescriptor(::open(path.c_str(), mode, 0666));
      if (!files[i]) {
        throw WorkerError("{}: cannot be written: {}", path.string(), std::strerror(errno));
      }
    }
    return files;
  }

  // Reads one piece of the output and passes it on. It does not read everything: a rank that never
  // stops printing must not block the handling of other ranks.
  bool read(std::size_t stream) {
    std::array<char, 65536> bytes;
    ssize_t size = 0;
    while ((size = ::read(program_.output_fd(stream), bytes.data(), bytes.size())) < 0 &&
           errno == EINTR) {
    }
    if (size > 0) take(stream, {bytes.data(), static_cast<std::size_t>(size)});
    if (size == 0 || (size < 0 && errno != EAGAIN)) open_[stream] = false;
    return size > 0;
  }

  // Called when the program has ended.
  void finish(rendezvous::Clock::time_point start, bool stopped) {
    const process::ChildEnd end = program_.reap();
    for (std::size_t stream = 0; stream < 2; ++stream) {
      // Reads what is left in the pipe. The number of reads is limited, because a process that has
      // left the group may still write there.
      for (int i = 0; i < kLastReads && open_[stream] && read(stream); ++i) {
      }
      open_[stream] = false;
      if (!partial_[stream].empty()) emit(stream, {std::exchange(partial_[stream], {})});
    }
    const auto now = rendezvous::Clock::now();
    end_ = RankEnd{.rank = rank_,
                   .end = end,
                   .stopped = stopped && !ended_by_itself_,
                   .suspended = suspended_,
                   .seconds = std::chrono::duration<double>(now - start).count(),
                   .time = now,
                   .last_lines = {last_.begin(), last_.end()}};
  }
  const RankEnd& end() const { return *end_; }

 private:
  void take(std::size_t stream, std::string_view bytes) {
    if (files_[stream]) {
      for (std::string_view left = bytes; !left.empty();) {
        const ssize_t written = ::write(files_[stream].get(), left.data(), left.size());
        if (written < 0 && errno != EINTR) break;  // on a full disk the run continues without log
        if (written > 0) left.remove_prefix(static_cast<std::size_t>(written));
      }
    }
    std::string& partial = partial_[stream];
    std::vector<std::string> lines;
    while (!bytes.empty()) {
      // A progress bar ends its lines with a carriage return.
      const std::size_t end = bytes.find_first_of("\n\r");
      partial += bytes.substr(0, end);
      if (end == std::string_view::npos) break;
      const bool again = bytes[end] == '\n' && after_return_[stream] && partial.empty();
      after_return_[stream] = bytes[end] == '\r';
      bytes.remove_prefix(end + 1);
      if (again) continue;  // "\r\n" ends one line, not two
      lines.push_back(std::exchange(partial, {}));
    }
    if (partial.size() >= kLongestLine) lines.push_back(std::exchange(partial, {}));
    emit(stream, lines);
  }

  void emit(std::size_t stream, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    last_.insert(last_.end(), lines.begin(), lines.end());
    while (last_.size() > kLastLines) last_.pop_front();
    if (options_.on_lines) options_.on_lines(rank_, stream, lines);
  }

  int rank_;
  const ProgramsOptions& options_;
  std::array<FileDescriptor, 2> files_;
  Program program_;
  std::array<bool, 2> open_ = {true, true};
  std::array<std::string, 2> partial_;
  std::array<bool, 2> after_return_ = {false, false};
  std::deque<std::string> last_;
  bool suspended_ = false;
  bool ended_by_itself_ = false;  // before it could be told to stop
  std::optional<RankEnd> end_;
};

class Supervision {
 public:
  Supervision(const ProgramsOptions& options, OrphanReaper& reaper, int stop_fd)
      : options_(options), reaper_(reaper), stop_fd_(stop_fd) {}

  ProgramsEnd run() {
    for (std::size_t i = 0; i < options_.environments.size(); ++i) {
      ranks_.push_back(std::make_unique<Rank>(options_.first_rank + static_cast<int>(i), options_,
                                              options_.environments[i]));
      reaper_.watch(ranks_.back()->program().process().pid());
    }
    options_.on_started();
    while (!std::ranges::all_of(ranks_, &Rank::is_done)) step();
    ProgramsEnd ended{
        .first_failure = first_failure_, .interrupted = interrupted_, .failed = failed_};
    for (const auto& rank : ranks_) ended.ranks.push_back(rank->end());
    return ended;
  }

 private:
  void step() {
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
    std::vector<std::function<void()>> actions = {[this] { on_signal(); }};
    const auto add = [&](int fd, std::function<void()> action) {
      fds.push_back({fd, POLLIN, 0});
      actions.push_back(std::move(action));
    };
    if (stop_fd_ >= 0 && !stopping_)
      add(stop_fd_, [this] {
        find_suspended();
        stop(SIGTERM, options_.grace);
      });
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      Rank& rank = *ranks_[i];
      if (rank.is_done()) continue;
      for (std::size_t stream = 0; stream < 2; ++stream) {
        if (rank.is_open(stream)) {
          add(rank.program().output_fd(stream), [&rank, stream] { rank.read(stream); });
        }
      }
      add(rank.program().process().ended_fd(), [this, i] { on_end(i); });
    }
    const int ready = ::poll(fds.data(), fds.size(), patience());
    if (ready > 0) {
      for (std::size_t i = 0; i < fds.size(); ++i) {
        if (fds[i].revents != 0) actions[i]();
      }
    }
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (must_be_asked(*ranks_[i]) && ranks_[i]->program().process().has_ended()) on_end(i);
    }
    if (kill_at_ && rendezvous::Clock::now() >= *kill_at_) {
      kill_at_.reset();
      send(SIGKILL);
    }
    end_if_only_suspended();
  }

  // Ends the ranks that are left if they are stopped and all others are done. Only time that this
  // process has seen counts: it may have been stopped together with its ranks.
  void end_if_only_suspended() {
    const auto now = rendezvous::Clock::now();
    const auto passed = std::min<rendezvous::Clock::duration>(now - std::exchange(checked_, now),
                                                              2 * kSuspendedInterval);
    if (!may_be_left()) return;
    const bool only_suspended =
        std::ranges::all_of(
            ranks_, [](const auto& rank) { return rank->is_done() || is_suspended_now(*rank); }) &&
        (is_any_done() || options_.others_ended());
    suspended_for_ = only_suspended ? suspended_for_ + passed : rendezvous::Clock::duration(0);
    if (suspended_for_ < options_.stopped_grace) return;
    find_suspended();
    stop(SIGTERM, options_.grace);
  }

  bool is_any_done() const { return std::ranges::any_of(ranks_, &Rank::is_done); }

  // Whether all ranks that still run may be left behind by the others. Ranks that have ended have
  // ended well, because otherwise the others would be told to stop.
  bool may_be_left() const {
    const bool has_others = is_any_done() || options_.others_ended;
    return has_others && !stopping_ && !std::ranges::all_of(ranks_, &Rank::is_done);
  }

  static bool is_suspended_now(Rank& rank) {
    const auto status = process::process_status(rank.program().process().pid());
    return status && status->state == 'T';
  }

  // Whether the rank runs without a descriptor that shows its end, so that it must be checked.
  static bool must_be_asked(Rank& rank) {
    return !rank.is_done() && rank.program().process().ended_fd() < 0;
  }

  // How long poll() may wait, in milliseconds; -1: for ever.
  int patience() const {
    int until_kill = kill_at_ ? rendezvous::milliseconds_until(*kill_at_) : -1;
    if (may_be_left()) until_kill = static_cast<int>(kSuspendedInterval.count());
    if (!std::ranges::any_of(ranks_, [](const auto& rank) { return must_be_asked(*rank); })) {
      return until_kill;
    }
    const int interval = static_cast<int>(process::ChildProcess::kPollInterval.count());
    return until_kill < 0 ? interval : std::min(until_kill, interval);
  }

  void on_signal() {
    const int signal = signals_.take();
    if (signal == 0) return;
    if (interrupted_ != 0) {  // the second signal kills at once
      send(SIGKILL);
      return;
    }
    interrupted_ = signal;
    stop(signal, options_.interrupt_grace);
  }

  void on_end(std::size_t index) {
    Rank& rank = *ranks_[index];
    const pid_t group = rank.program().process().pid();
    rank.finish(start_, stopping_);
    reaper_.forget(group);
    if (!rank.end().end.ok() && !stopping_) {
      first_failure_ = index;
      find_suspended();
      stop(SIGTERM, options_.grace);
    }
  }

  // A rank that is stopped by a signal does not answer the other ranks, also those of other nodes.
  // So it is the likely cause, and not the rank that gave up first.
  void find_suspended() {
    for (const auto& rank : ranks_) {
      if (!rank->is_done() && is_suspended_now(*rank)) rank->set_suspended();
    }
  }

  // A rank that another failure has left suspended is killed. SIGCONT follows for the others,
  // because a process that is stopped later handles the signal only when it continues.
  void stop(int signal, std::chrono::milliseconds grace) {
    // A rank that ended at the same time, before the signal, was not stopped by it.
    for (const auto& rank : ranks_) {
      if (!rank->is_done() && rank->program().process().has_ended()) rank->set_ended_by_itself();
    }
    if (!failed_) failed_ = rendezvous::Clock::now();
    stopping_ = true;
    kill_at_ = rendezvous::deadline_in(grace);
    for (const auto& rank : ranks_) {
      if (!rank->is_done() && rank->is_suspended()) rank->program().send(SIGKILL);
    }
    send(signal);
    send(SIGCONT);
  }

  void send(int signal) {
    for (const auto& rank : ranks_) {
      if (!rank->is_done()) rank->program().send(signal);
    }
  }

  const ProgramsOptions& options_;
  OrphanReaper& reaper_;
  int stop_fd_;
  Signals signals_;
  rendezvous::Clock::time_point start_ = rendezvous::Clock::now();
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::optional<std::size_t> first_failure_;
  std::optional<rendezvous::Clock::time_point> kill_at_;
  bool stopping_ = false;
  int interrupted_ = 0;
  std::optional<rendezvous::Clock::time_point> failed_;
  rendezvous::Clock::time_point checked_ = start_;  // the last time for end_if_only_suspended()
  rendezvous::Clock::duration suspended_for_{0};
};

}  // namespace

ProgramsEnd run_programs(const ProgramsOptions& options, OrphanReaper& reaper, int stop_fd) {
  return Supervision(options, reaper, stop_fd).run();
}

}  // namespace lockstep::launcher
