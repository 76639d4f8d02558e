#include "tests/chaos/fault_trial.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/process/process.h"
#include "tests/chaos/sandbox.h"
#include "tests/chaos/throw_page.h"
#include "tests/chaos/training_run.h"

namespace lockstep::chaos {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kRunLimit = 30;   // seconds from the last fault to the end of the run
constexpr double kGoneLimit = 10;  // seconds from there to the end of its last process
constexpr double kTimeLimit = std::chrono::duration<double>(kRunTimeout).count();
constexpr auto kPollInterval = std::chrono::milliseconds(5);

// A signal handler can only use a global variable.
volatile std::sig_atomic_t end_is_requested = 0;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Something is not as promised.
class PromiseBroken : public std::runtime_error {
 public:
  template <typename... Args>
  explicit PromiseBroken(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

std::string to_string(const std::vector<process::ChildEnd>& ends) {
  std::vector<std::string> texts;
  for (const auto& end : ends) texts.push_back(process::to_string(end));
  return join(texts, " and ");
}

// Tells when a file is opened for writing in a folder that may not exist yet.
class SaveWatch {
 public:
  explicit SaveWatch(fs::path folder)
      : folder_(std::move(folder)), inotify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {}

  // The number of writes that have begun since the last call.
  int count() {
    if (!watched_) {
      watched_ = ::inotify_add_watch(inotify_.get(), folder_.c_str(), IN_OPEN | IN_CREATE) >= 0;
      return 0;
    }
    int begun = 0;
    alignas(inotify_event) std::array<char, 4096> bytes;
    for (ssize_t size; (size = ::read(inotify_.get(), bytes.data(), bytes.size())) > 0;) {
      for (ssize_t at = 0; at < size;) {
        inotify_event event;
        std::memcpy(&event, bytes.data() + at, sizeof event);
        const char* const name = bytes.data() + at + sizeof event;
        // A file without a name shows as # and its number.
        if (event.len > 0 && (name[0] == '#' || std::strstr(name, ".tmp.") != nullptr)) ++begun;
        at += static_cast<ssize_t>(sizeof event + event.len);
      }
    }
    return begun;
  }

 private:
  fs::path folder_;
  FileDescriptor inotify_;
  bool watched_ = false;
};

// The page through which a process is asked to throw, in a file of its own.
class MappedPage {
 public:
  explicit MappedPage(const fs::path& path) {
    std::ofstream(path, std::ios::binary) << std::string(sizeof(ThrowPage), '\0');
    const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    void* const memory =
        ::mmap(nullptr, sizeof(ThrowPage), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED)
      throw Error("{}: cannot map: {}", path.string(), std::strerror(errno));
    page_ = static_cast<ThrowPage*>(memory);
  }
  ~MappedPage() { ::munmap(page_, sizeof(ThrowPage)); }
  MappedPage(const MappedPage&) = delete;
  MappedPage& operator=(const MappedPage&) = delete;

  ThrowPage* operator->() const { return page_; }

 private:
  ThrowPage* page_;
};

int signal_of(FaultKind fault) {
  switch (fault) {
    case FaultKind::kSegv:
      return SIGSEGV;
    case FaultKind::kStop:
    case FaultKind::kShortStop:
    case FaultKind::kLongStop:
      return SIGSTOP;
    case FaultKind::kInterrupt:
      return SIGINT;
    case FaultKind::kTerminate:
      return SIGTERM;
    default:
      return SIGKILL;
  }
}

bool is_exception(FaultKind fault) {
  return fault == FaultKind::kException || fault == FaultKind::kLasting;
}

bool is_damage(FaultKind fault) {
  return fault == FaultKind::kTornWrite || fault == FaultKind::kFlippedBit;
}

// A run that ends well did not meet such a fault any more: it had nothing left to write, or had
// finished its last batch.
bool ends_what_it_meets(FaultKind fault) {
  return fault == FaultKind::kFullDisk || fault == FaultKind::kInterrupt ||
         fault == FaultKind::kTerminate;
}

// The caller catches the signal and cleans up before it ends.
bool is_caught(const Scenario& scenario) {
  const bool is_forked =
      scenario.transport == Transport::kShm || scenario.transport == Transport::kGloo;
  return is_forked &&
         (scenario.fault == FaultKind::kInterrupt || scenario.fault == FaultKind::kTerminate);
}

// The run cannot go on without making a worker or a rank anew. This is not so for a longer stop:
// between batches a rank may take longer than the time limit.
bool needs_recovery(const Scenario& scenario) {
  if (scenario.promise != Promise::kContinues || scenario.victim == Victim::kTemplate) return false;
  return scenario.fault != FaultKind::kLongStop && scenario.fault != FaultKind::kLongCut &&
         scenario.fault != FaultKind::kShortStop;
}

// A node of an elastic run may end with an error if the fault took it from the others.
bool takes_a_node(const Scenario& scenario) {
  return scenario.victim == Victim::kLauncher1 || scenario.fault == FaultKind::kCut ||
         scenario.fault == FaultKind::kLongCut;
}

bool has_two_nodes(Transport transport) {
  return transport == Transport::kNodes || transport == Transport::kElastic;
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const fs::path& path : entries_of(folder)) names.insert(path.filename().string());
  return names;
}

std::string random_hex_token() {
  std::string token;
  std::random_device device;
  for (int i = 0; i < 4; ++i) {
    token += to_hex((static_cast<std::uint64_t>(device()) << 32) | device());
  }
  return token;
}

// One run and everything around it.
class FaultTrial {
 public:
  FaultTrial(const TrialSettings& settings, const Scenario& scenario, fs::path folder)
      : settings_(settings),
        scenario_(scenario),
        folder_(std::move(folder)),
        run_folder_(folder_ / "run"),
        shm_before_(names_in("/dev/shm")),
        ports_before_(listening_ports()) {
    make_directories(folder_ / "tmp");
    if (scenario.fault == FaultKind::kFullDisk) disk_ = std::make_unique<SmallDisk>(run_folder_);
    if (is_exception(scenario.fault)) page_ = std::make_unique<MappedPage>(folder_ / "page");
    if (has_two_nodes(scenario.transport)) {
      hosts_ = std::make_unique<HostPair>();
      std::ofstream(folder_ / "token") << random_hex_token() << '\n';
      fs::permissions(folder_ / "token", fs::perms::owner_read | fs::perms::owner_write);
    }
  }

  ~FaultTrial() {
    if (run_) kill_marked(mark_);
    run_.reset();
    // The processes that the run has left are children of this one now.
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
  FaultTrial(const FaultTrial&) = delete;
  FaultTrial& operator=(const FaultTrial&) = delete;

  UndisturbedRun run_undisturbed() {
    UndisturbedRun undisturbed;
    run_limit_ = 4 * kRunLimit;
    start({.transport = scenario_.transport});
    wait_until([&] { return !run_->workers().empty(); }, kRunLimit);
    undisturbed.until_workers = run_->seconds();
    finish();
    undisturbed.until_end = run_->seconds();
    if (!run_->all_ended_well()) {
      throw PromiseBroken("a run without a fault ends with {}", to_string(run_->ends()));
    }
    undisturbed.record = read_run(run_folder_);
    if (undisturbed.record.weights_hash.empty()) {
      throw PromiseBroken("a run without a fault has no hash of its weights in summary.json");
    }
    check_folder();
    return undisturbed;
  }

  void run(const UndisturbedRun& undisturbed, RandomSource& random, FaultResult& result) {
    // On a busy machine everything takes longer.
    run_limit_ = std::max(kRunLimit, 10 * undisturbed.until_end);
    start({.transport = scenario_.transport});
    result.injected = arrive(undisturbed, random);
    const bool had_saved = fs::exists(run_folder_ / "checkpoints/last.pth");
    result.injected = result.injected && inject(random);
    // Training had begun, and after the fault at least one more epoch had to be trained. In the
    // last one, the victim may have done its part already.
    amid_training_ = had_saved && finished_epochs(run_folder_) + 1 < epochs_of(scenario_.program);
    finish();
    if (result.injected && is_caught(scenario_)) check_folder();
    if (run_->ended_well() && is_damage(scenario_.fault)) {  // it was over before it was killed
      result.injected = false;
      result.outcome = "was over before";
      compare(undisturbed.record);
      return;
    }
    if (run_->ended_well() && ends_what_it_meets(scenario_.fault)) result.injected = false;
    result.recoveries = static_cast<int>(read_recoveries(run_folder_).size());
    measure(result);
    check_end(result);
    if (run_->ended_well() && !is_damage(scenario_.fault)) {
      compare(undisturbed.record);
      result.outcome = result.injected ? "continued" : "was over before";
    } else if (!is_damage(scenario_.fault) && is_complete(undisturbed.record)) {
      compare(undisturbed.record);
      result.outcome = "ended after its last result";
    } else {
      recover_from_disk(undisturbed.record, random, result);
    }
    // A process that SIGKILL has ended leaves its lock, which does no harm.
    if (run_->ended_well()) check_folder();
    if (result.injected) {
      result.outcome = fmt::format("at {:.2f} s{}: {}", fault_seconds_, notes_, result.outcome);
    }
  }

  // For the report of a failure.
  std::string details() const {
    std::string text;
    if (run_) text += run_->output();
    const auto left = marked_processes(mark_);
    if (!left.empty()) text += "--- processes that are left\n" + describe(left);
    return text;
  }

  // A disk of its own vanishes with this object, so its files are copied.
  void keep_files() const {
    if (!disk_) return;
    std::error_code ignored;
    disk_->empty();
    fs::copy(run_folder_, folder_ / "run-copy", fs::copy_options::recursive, ignored);
  }

 private:
  struct StartedAs {
    Transport transport = Transport::kShm;
    bool resume = false;
    bool disturbed = true;  // the fault may be injected
  };

  void start(const StartedAs& as) {
    ++starts_;
    // A new mark, so that processes of an earlier run are not taken for this one's.
    mark_ = fmt::format("{}-{:016x}-{}", ::getpid(), scenario_.seed, starts_);
    const bool hooked = page_ && as.disturbed;
    run_ = std::make_unique<TrainingRun>(
        TrainingRunOptions{.programs = settings_.programs,
                           .program = scenario_.program,
                           .transport = as.transport,
                           .restarts = settings_.restarts,
                           .resume = as.resume,
                           .folder = run_folder_,
                           .temporary = folder_ / "tmp",
                           .output = folder_ / fmt::format("start{}", starts_),
                           .token_file = folder_ / "token",
                           .mark = mark_,
                           .hosts = has_two_nodes(as.transport) ? hosts_.get() : nullptr,
                           .hook = hooked ? settings_.programs / "liblockstep_chaos_hook.so" : "",
                           .page = folder_ / "page",
                           .cores = settings_.cores});
  }

  // Polls until the condition holds. False if the run ends or the time is over before.
  bool wait_until(const std::function<bool()>& condition, double seconds) {
    const auto start = Clock::now();
    while (true) {
      if (end_requested()) throw EndRequested();
      act();
      if (condition()) return true;
      if (run_->has_ended() || seconds_since(start) > seconds) return false;
      std::this_thread::sleep_for(kPollInterval);
    }
  }

  bool pause(double seconds) {
    const auto start = Clock::now();
    return wait_until([&] { return seconds_since(start) >= seconds; }, seconds + 1);
  }

  // Does what is due: the end of a stop or of a cut.
  void act() {
    for (auto& action : actions_) {
      if (!action.done || Clock::now() < action.when) continue;
      std::exchange(action.done, nullptr)();
    }
    if (fault_at_ && !noticed_ && run_->error_lines() > errors_before_) noticed_ = Clock::now();
  }

  void later(double seconds, std::function<void()> what) {
    actions_.push_back({Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(seconds)),
                        std::move(what)});
    last_action_ = std::max(last_action_, actions_.back().when);
  }

  // Waits for the moment of the fault. False if the run is over before.
  bool arrive(const UndisturbedRun& undisturbed, RandomSource& random) {
    const double training = std::max(0.1, undisturbed.until_end - undisturbed.until_workers);
    const auto has_workers = [&] { return !run_->workers().empty(); };
    switch (scenario_.moment) {
      case Moment::kStart:
        if (waits_for_victim()) {
          return wait_until([&] { return has_victim(); }, kRunLimit) &&
                 pause(random.between(0, 0.15));
        }
        return pause(random.between(0, undisturbed.until_workers + 0.2)) && has_file_to_damage();
      case Moment::kTraining:
        return wait_until(has_workers, kRunLimit) && pause(random.between(0, training)) &&
               has_file_to_damage();
      case Moment::kSaving: {
        SaveWatch watch(run_folder_ / "checkpoints");
        int left = 1 + static_cast<int>(random.below(6));
        return wait_until([&] { return (left -= watch.count()) <= 0; }, kRunLimit) &&
               pause(random.between(0, 0.004)) && has_file_to_damage();
      }
      case Moment::kRecovery:
        return arrive_in_recovery(training, random);
      case Moment::kEnd:
        return wait_until(
                   [&] { return finished_epochs(run_folder_) == epochs_of(scenario_.program); },
                   kRunLimit) &&
               pause(random.between(0, 0.12)) && has_file_to_damage();
    }
    return false;
  }

  // Kills a worker or a rank, and waits until the run does something about it.
  bool arrive_in_recovery(double training, RandomSource& random) {
    if (!wait_until([&] { return !run_->workers().empty(); }, kRunLimit)) return false;
    if (!pause(random.between(0, 0.8 * training))) return false;
    std::set<pid_t> before;
    for (const MarkedProcess& process : run_->processes()) before.insert(process.pid);
    const auto workers = run_->workers();
    if (workers.empty()) return false;
    const std::size_t errors = run_->error_lines();
    process::PeerProcess(random.pick(workers).pid).send(SIGKILL);
    fault_times_.push_back(std::chrono::system_clock::now());
    notes_ += fmt::format(", after a kill at {:.2f} s", run_->seconds());
    const auto reacts = [&] {
      return run_->error_lines() > errors ||
             std::ranges::any_of(run_->processes(), [&](const MarkedProcess& process) {
               return !before.contains(process.pid);
             });
    };
    return wait_until(reacts, kRunLimit) && pause(random.between(0, 0.4));
  }

  // A file can only be damaged after a save.
  bool has_file_to_damage() {
    if (!is_damage(scenario_.fault)) return true;
    return wait_until([&] { return fs::exists(run_folder_ / "checkpoints/last.pth"); }, kRunLimit);
  }

  bool waits_for_victim() const {
    switch (scenario_.victim) {
      case Victim::kWorker:
      case Victim::kTemplate:
      case Victim::kRank:
      case Victim::kReaper:
        return true;
      default:
        return is_exception(scenario_.fault);
    }
  }

  bool has_victim() const {
    return scenario_.victim == Victim::kEveryone || !run_->candidates(scenario_.victim).empty();
  }

  // Injects the fault. False if there was nothing left to disturb.
  bool inject(RandomSource& random) {
    switch (scenario_.victim) {
      case Victim::kDisk:
        disk_->fill();
        note_fault();
        return !run_->has_ended();
      case Victim::kLink:
        return cut_link(random);
      case Victim::kGroup:
        note_fault();
        return !run_->has_ended() && ::kill(-run_->main(), signal_of(scenario_.fault)) == 0;
      case Victim::kFile:
        // The damage itself comes after the end.
        note_fault();
        return send(run_->main(), SIGKILL);
      case Victim::kEveryone:
        return throw_in(ThrowPage::kEverybody, random);
      default:
        break;
    }
    std::vector<MarkedProcess> candidates;
    const auto find = [&] {
      candidates = run_->candidates(scenario_.victim);
      return !candidates.empty();
    };
    if (!wait_until(find, kRunLimit)) return false;
    const MarkedProcess victim = random.pick(candidates);
    if (victim.rank >= 0) notes_ += fmt::format(", rank {}", victim.rank);
    if (scenario_.fault == FaultKind::kException) return throw_in(victim.pid, random);
    note_fault();
    if (!send(victim.pid, signal_of(scenario_.fault))) return false;
    continue_later(victim.pid, random);
    return true;
  }

  void note_fault() {
    errors_before_ = run_->error_lines();
    fault_at_ = last_action_ = Clock::now();
    fault_seconds_ = run_->seconds();
    fault_times_.push_back(std::chrono::system_clock::now());
  }

  // False if the process has ended.
  static bool send(pid_t pid, int signal) {
    const auto pidfd = process::open_pidfd(pid);
    return pidfd && !process::has_ended(pidfd) && process::send_signal(pidfd, signal);
  }

  void continue_later(pid_t pid, RandomSource& random) {
    if (scenario_.fault == FaultKind::kShortStop) {
      stopped_for(pid, random.between(0.05, kTimeLimit / 3));
    } else if (scenario_.fault == FaultKind::kLongStop) {
      stopped_for(pid, random.between(kTimeLimit + 0.5, 2 * kTimeLimit));
    } else if (scenario_.fault == FaultKind::kStop) {
      later(2.5 * kTimeLimit, [this, pid] { continue_if_alone(pid); });
    }
  }

  // A worker ends a stopped caller, and ranks that wait for a stopped one fail. If all work is
  // done, the launcher ends a stopped rank, unless it cannot know this: nodes may come and go. If
  // no process can end the stopped one, it is continued.
  void continue_if_alone(pid_t pid) {
    const bool is_over =
        scenario_.transport == Transport::kElastic && fs::exists(run_folder_ / "summary.json");
    const bool is_alone = scenario_.victim == Victim::kCaller && run_->workers().empty();
    const auto status = process::process_status(pid);
    if ((!is_over && !is_alone) || !status || status->state != 'T') return;
    notes_ +=
        is_over ? ", continued because the run was over" : ", continued because it had no workers";
    send(pid, SIGCONT);
  }

  void stopped_for(pid_t pid, double seconds) {
    notes_ += fmt::format(" for {:.2f} s", seconds);
    later(seconds, [pid] { send(pid, SIGCONT); });
  }

  bool cut_link(RandomSource& random) {
    const int host = static_cast<int>(random.below(2));
    notes_ += fmt::format(", at node {}", host);
    hosts_->set_link(host, false);
    note_fault();
    std::optional<double> duration;
    if (scenario_.fault == FaultKind::kShortCut) duration = random.between(0.05, kTimeLimit / 3);
    if (scenario_.fault == FaultKind::kLongCut) {
      duration = random.between(kTimeLimit + 0.5, 2 * kTimeLimit);
    }
    if (duration) {
      notes_ += fmt::format(" for {:.2f} s", *duration);
      later(*duration, [this, host] { hosts_->set_link(host, true); });
    }
    return !run_->has_ended();
  }

  bool throw_in(pid_t pid, RandomSource& random) {
    (*page_)->lacks_memory = static_cast<std::int32_t>(random.below(2));
    if ((*page_)->lacks_memory != 0) notes_ += ", no memory";
    (*page_)->pid = pid;
    const bool thrown = wait_until([&] { return (*page_)->thrown > 0; }, kRunLimit);
    note_fault();
    if (!thrown) (*page_)->pid = ThrowPage::kNobody;
    return thrown;
  }

  // Waits for the end of all processes and looks for what they have left behind.
  void finish() {
    const auto start = Clock::now();
    while (!run_->has_ended()) {
      if (end_requested()) throw EndRequested();
      act();
      if (std::min(seconds_since(start), seconds_since(last_action_)) > end_limit()) {
        throw PromiseBroken("the run has not ended within {} s", end_limit());
      }
      std::this_thread::sleep_for(kPollInterval);
    }
    ended_at_ = Clock::now();
    while (!run_->processes().empty()) {
      if (end_requested()) throw EndRequested();
      act();
      if (seconds_since(*ended_at_) > kGoneLimit) {
        throw PromiseBroken("processes are left {} s after the end", kGoneLimit);
      }
      std::this_thread::sleep_for(kPollInterval);
    }
    actions_.clear();
    check_nothing_left();
  }

  // Ranks that have not joined yet have a longer time limit: 6 times that of the run.
  double end_limit() const {
    const bool may_be_joining =
        scenario_.moment == Moment::kStart || scenario_.moment == Moment::kRecovery;
    return may_be_joining ? run_limit_ + 6 * kTimeLimit : run_limit_;
  }

  void check_nothing_left() const {
    for (const std::string& name : names_in("/dev/shm")) {
      if (!shm_before_.contains(name)) throw PromiseBroken("/dev/shm/{} is left", name);
    }
    for (const std::string& name : names_in(folder_ / "tmp")) {
      throw PromiseBroken("{} is left", (folder_ / "tmp" / name).string());
    }
    for (const auto& [inode, address] : listening_ports()) {
      // Other programs of this machine may have begun to listen meanwhile, or have just ended. The
      // kernel closes the sockets of a process a moment after its end.
      const auto is_gone = [&] { return !listening_ports().contains(inode) || is_held(inode); };
      if (ports_before_.contains(inode) || is_held(inode)) continue;
      const auto start = Clock::now();
      while (!is_gone()) {
        if (seconds_since(start) > 2) throw PromiseBroken("the port {} is left", address);
        std::this_thread::sleep_for(kPollInterval);
      }
    }
    if (!hosts_) return;
    for (int host = 0; host < 2; ++host) {
      for (const auto& [inode, address] : listening_ports(hosts_->network(host))) {
        throw PromiseBroken("the port {} of node {} is left", address, host);
      }
    }
  }

  void check_folder() const {
    for (const fs::path& path : abandoned_files(run_folder_)) {
      throw PromiseBroken("{} is left", path.string());
    }
  }

  void compare(const RunRecord& expected) const {
    try {
      if (const auto text = difference(expected, read_run(run_folder_))) {
        throw PromiseBroken("{}", *text);
      }
    } catch (const PromiseBroken&) {
      throw;
    } catch (const std::exception& error) {
      throw PromiseBroken("{}", error.what());
    }
  }

  // Whether the run has written its summary, with the right weights.
  bool is_complete(const RunRecord& expected) const {
    return read_run(run_folder_).weights_hash == expected.weights_hash;
  }

  void measure(FaultResult& result) const {
    if (!result.injected) return;
    const auto recoveries = read_recoveries(run_folder_);
    for (const RecoveryLine& line : recoveries) {
      const double detection = seconds_after_fault(line.noticed);
      result.detection.push_back(detection);
      result.recovery.push_back(detection + line.seconds);
    }
    if (recoveries.empty() && !run_->ended_well()) {
      // The first message, or the end.
      const auto known = std::min(noticed_.value_or(*ended_at_), *ended_at_);
      result.detection.push_back(std::chrono::duration<double>(known - *fault_at_).count());
    }
  }

  // From the last fault before that moment. A fault is noted a few milliseconds after it happened.
  double seconds_after_fault(std::chrono::system_clock::time_point moment) const {
    auto fault = fault_times_.front();
    for (const auto time : fault_times_) {
      if (time <= moment) fault = time;
    }
    return std::max(0.0, std::chrono::duration<double>(moment - fault).count());
  }

  // The exit code and the messages.
  void check_end(const FaultResult& result) const {
    const bool well = run_->ended_well();
    // Before a fault in a recovery a worker is killed, after which the run must go on, too.
    if (!result.injected && !well) {
      throw PromiseBroken("the run ended before the fault, with {}", to_string(run_->ends()));
    }
    if (!result.injected) return;
    const Promise promise = scenario_.promise;
    const bool continues = promise == Promise::kContinues || promise == Promise::kUndisturbed;
    // An exception in the dry run is taken for a criterion that does not fit. This is a wrong
    // option, which is not tried again. As long as a rank is in its dry run, no epoch is finished.
    const bool in_dry_run = scenario_.fault == FaultKind::kException &&
                            finished_epochs(run_folder_) == 0 &&
                            run_->output().find("does not fit the model's") != std::string::npos;
    if (continues && !well && !in_dry_run) {
      throw PromiseBroken("ended with {}, expected 0", to_string(run_->ends()));
    }
    if (continues && well && !takes_a_node(scenario_) && !run_->all_ended_well()) {
      throw PromiseBroken("ended with {}, expected 0 on both nodes", to_string(run_->ends()));
    }
    if (well && amid_training_ && needs_recovery(scenario_) && result.recoveries == 0) {
      throw PromiseBroken("there was no recovery, expected one");
    }
    if (promise == Promise::kEnds && well) {
      throw PromiseBroken("ended with 0, expected another code");
    }
    const int expected = scenario_.moment == Moment::kRecovery ? 1 : 0;
    if (promise == Promise::kUndisturbed && result.recoveries > expected) {
      throw PromiseBroken("there were {} recoveries, expected {}", result.recoveries, expected);
    }
    if (well) return;
    const std::string output = run_->output();
    if (scenario_.fault == FaultKind::kFullDisk && !names_full_disk(output)) {
      throw PromiseBroken("no line names the file and says 'No space left on device'");
    }
    if (scenario_.fault == FaultKind::kLasting && output.find(kThrownText) == std::string::npos &&
        output.find("not enough memory") == std::string::npos) {
      throw PromiseBroken("the output does not say what was thrown");
    }
  }

  bool names_full_disk(const std::string& output) const {
    std::istringstream text(output);
    std::string line;
    while (std::getline(text, line)) {
      if (line.find(run_folder_.string()) != std::string::npos &&
          line.find("No space left on device") != std::string::npos) {
        return true;
      }
    }
    return false;
  }

  // Resumes the run, or starts it anew if it has saved nothing.
  void recover_from_disk(const RunRecord& expected, RandomSource& random, FaultResult& result) {
    if (disk_) disk_->empty();
    std::string damaged;
    if (is_damage(scenario_.fault)) damaged = damage(random);
    // One host is enough.
    const Transport transport =
        has_two_nodes(scenario_.transport) ? Transport::kShm : scenario_.transport;
    const bool resume = fs::exists(run_folder_ / "checkpoints/last.pth");
    const bool has_others = has_other_checkpoints();
    notes_ += damaged.empty() ? "" : ", damaged " + damaged;
    start({.transport = transport, .resume = resume, .disturbed = false});
    finish();
    result.resumed = resume;
    result.outcome = resume ? "ended, resumed" : "ended, started anew";
    const bool says_so = run_->output().find("last.pth") != std::string::npos;
    if (damaged.starts_with("last.pth") && scenario_.fault == FaultKind::kTornWrite && !says_so) {
      throw PromiseBroken("the resumed run does not say that {} is damaged", damaged);
    }
    if (!run_->ended_well() && damaged.starts_with("last.pth") && !has_others && says_so) {
      // There is nothing else to resume from.
      start({.transport = transport, .resume = false, .disturbed = false});
      finish();
      result.resumed = false;
      result.outcome = "ended, refused to resume, started anew";
    }
    if (!run_->ended_well()) {
      throw PromiseBroken("{}: it ends with {}, expected 0", result.outcome,
                          to_string(run_->ends()));
    }
    compare(expected);
  }

  bool has_other_checkpoints() const {
    return std::ranges::any_of(entries_of(run_folder_ / "checkpoints"), [](const fs::path& path) {
      return path.filename().string().starts_with("epoch.");
    });
  }

  // Damages a file of the run's folder and says which.
  std::string damage(RandomSource& random) {
    const bool torn = scenario_.fault == FaultKind::kTornWrite;
    std::vector<fs::path> files;
    for (const fs::path& path : entries_of(run_folder_ / "checkpoints")) {
      if (path.filename().string().find(".tmp.") == std::string::npos) files.push_back(path);
    }
    // Only the last line of a log can be torn.
    if (torn && fs::exists(run_folder_ / "logs/train.csv")) {
      files.push_back(run_folder_ / "logs/train.csv");
    }
    std::ranges::sort(files);
    // Half of the time it is the file that the resume wants.
    const fs::path path =
        random.below(2) == 0 ? run_folder_ / "checkpoints/last.pth" : random.pick(files);
    std::string bytes = read_file(path);
    std::size_t at = 0;
    if (!torn) {
      at = random.below(bytes.size());
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
    } else if (path.extension() == ".csv") {
      const std::size_t line = bytes.rfind('\n', bytes.size() - 2) + 1;
      at = line + random.below(bytes.size() - line);
      bytes.resize(at);
    } else {
      at = random.below(bytes.size());
      bytes.resize(at);
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return fmt::format("{} at byte {}", path.filename().string(), at);
  }

  struct TimedAction {
    Clock::time_point when;
    std::function<void()> done;  // empty after it was called
  };

  const TrialSettings& settings_;
  Scenario scenario_;
  fs::path folder_;
  fs::path run_folder_;
  std::set<std::string> shm_before_;
  std::map<std::string, std::string> ports_before_;
  std::unique_ptr<SmallDisk> disk_;
  std::unique_ptr<MappedPage> page_;
  std::unique_ptr<HostPair> hosts_;
  double run_limit_ = kRunLimit;
  int starts_ = 0;
  std::string mark_;
  std::unique_ptr<TrainingRun> run_;
  std::vector<TimedAction> actions_;
  Clock::time_point last_action_;
  std::string notes_;
  std::size_t errors_before_ = 0;
  bool amid_training_ = false;  // the fault came when there was more to train
  double fault_seconds_ = 0;    // since the start of the run
  std::vector<std::chrono::system_clock::time_point> fault_times_;  // of all faults, ascending
  std::optional<Clock::time_point> fault_at_;
  std::optional<Clock::time_point> noticed_;
  std::optional<Clock::time_point> ended_at_;
};

}  // namespace

void request_end() {
  end_is_requested = 1;
}

bool end_requested() {
  return end_is_requested != 0;
}

FaultTrials::FaultTrials(TrialSettings settings, std::vector<Scenario> scenarios)
    : settings_(std::move(settings)), scenarios_(std::move(scenarios)) {
  for (const char* const name : {"mnist", "gan", "lockstep", "liblockstep_chaos_hook.so"}) {
    if (fs::exists(settings_.programs / name)) continue;
    throw Error("{}: does not exist; run 'make build'", (settings_.programs / name).string());
  }
}

const UndisturbedRun& FaultTrials::undisturbed(TrainedProgram program, Transport transport) {
  const auto known = undisturbed_.find({program, transport});
  if (known != undisturbed_.end()) return known->second;
  const fs::path folder =
      settings_.work / fmt::format("{}-{}", name_of(program), name_of(transport));
  FaultTrial trial(settings_, {.program = program, .transport = transport}, folder);
  try {
    UndisturbedRun run = trial.run_undisturbed();
    // All transports give the same bits.
    for (const auto& [key, other] : undisturbed_) {
      if (key.first != program) continue;
      if (const auto text = difference(other.record, run.record)) {
        throw PromiseBroken("{} and {} differ: {}", name_of(key.second), name_of(transport), *text);
      }
    }
    fs::remove_all(folder);
    return undisturbed_[{program, transport}] = run;
  } catch (const PromiseBroken& broken) {
    throw Error("{} over {}, without a fault: {}\n{}--- kept: {}", name_of(program),
                name_of(transport), broken.what(), trial.details(), folder.string());
  }
}

FaultResult FaultTrials::run(std::uint64_t seed) {
  const auto start = Clock::now();
  RandomSource random(seed);
  const Scenario scenario = choose(scenarios_, seed, random);
  FaultResult result{.seed = seed, .name = scenario.name(), .group = scenario.group()};
  const UndisturbedRun& expected = undisturbed(scenario.program, scenario.transport);
  const fs::path folder = settings_.work / fmt::format("{:016x}", seed);
  try {
    FaultTrial trial(settings_, scenario, folder);
    try {
      trial.run(expected, random, result);
    } catch (const std::exception& broken) {  // also a file of the run that cannot be read
      result.failure = fmt::format("{}\n", broken.what());
      result.failure += fmt::format("{}--- kept: {}", trial.details(), folder.string());
      trial.keep_files();
    }
  } catch (const std::exception& error) {  // in the making of a trial, or of this report
    result.failure += fmt::format("{}\n", error.what());
  }
  if (result.failure.empty()) fs::remove_all(folder);
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace lockstep::chaos
