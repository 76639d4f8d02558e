// Disturbs training runs at random moments and checks that each of them ends as promised, with the
// weights and logs of the undisturbed run, and leaves nothing behind. See docs/decisions/tests.md.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/process/affinity.h"
#include "lockstep/process/child_process.h"
#include "tests/chaos/chaos_report.h"
#include "tests/chaos/fault_trial.h"
#include "tests/chaos/sandbox.h"
#include "tests/chaos/scenario.h"

namespace lockstep::chaos {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct ChaosArguments {
  int faults = 100;
  std::optional<std::uint64_t> seed;
  std::optional<std::uint64_t> repeat;
  std::optional<double> minutes;
  int jobs = 1;
  bool list = false;
  bool without_restarts = false;
  bool elastic = false;
  std::string only;
  fs::path programs;
};

// Two cores for each job, so that the number of threads in a rank is the same on all machines: with
// another number the bits of the weights differ.
std::vector<int> cores_of_job(int job) {
  const auto all = process::available_cores();
  std::vector<int> cores;
  for (std::size_t i = 0; i < std::min<std::size_t>(2, all.size()); ++i) {
    cores.push_back(all[(2 * static_cast<std::size_t>(job) + i) % all.size()]);
  }
  return cores;
}

// A folder that stays if a run failed in it.
class WorkFolder {
 public:
  WorkFolder() {
    std::string name = (fs::temp_directory_path() / "chaos-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw Error("{}: cannot create: {}", name, std::strerror(errno));
    }
    path_ = name;
  }
  ~WorkFolder() {
    std::error_code ignored;
    if (!keep_) fs::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const fs::path& path() const { return path_; }
  void keep() { keep_ = true; }

 private:
  fs::path path_;
  bool keep_ = false;
};

// A process that makes trials, one after the other. It has its own mounts, so that jobs do not see
// each other's files in /dev/shm.
class JobProcess {
 public:
  // `earlier` are the jobs before this one.
  JobProcess(const TrialSettings& settings, const std::vector<Scenario>& scenarios,
             const std::vector<std::unique_ptr<JobProcess>>& earlier) {
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
      throw Error("cannot make a socket pair: {}", std::strerror(errno));
    }
    socket_ = FileDescriptor(ends[0]);
    FileDescriptor other(ends[1]);
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid < 0) throw Error("cannot fork: {}", std::strerror(errno));
    if (pid == 0) {
      socket_ = FileDescriptor();
      // The new process must not keep the sockets open by which the others see their end.
      for (const auto& job : earlier) job->disown();
      ::_exit(live(settings, scenarios, other));
    }
    process_ = process::ChildProcess(pid);
  }

  int fd() const { return socket_.get(); }
  bool is_busy() const { return busy_; }

  void give(std::uint64_t seed) {
    busy_ = ::send(socket_.get(), &seed, sizeof seed, MSG_NOSIGNAL) == sizeof seed;
    if (!busy_) throw Error("a job of lockstep_chaos has ended");
  }

  // The result of the trial, when fd() is readable.
  FaultResult take() {
    busy_ = false;
    std::string bytes(kLongestResult, '\0');
    const ssize_t size = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (size <= 0) throw Error("a job of lockstep_chaos has ended; see its message above");
    bytes.resize(static_cast<std::size_t>(size));
    return from_json(bytes);
  }

  // Lets it end and clean up.
  void end() {
    process_.send(SIGTERM);
    socket_ = FileDescriptor();
    process_.reap();
  }

 private:
  static constexpr std::size_t kLongestResult = 150'000;  // a message of a socket

  void disown() {
    socket_ = FileDescriptor();
    process_.disown();
  }

  static int live(const TrialSettings& settings, const std::vector<Scenario>& scenarios,
                  const FileDescriptor& socket) try {
    // The end of a killed run's processes is seen here, and not by a process that may not care.
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    // If these fail, /dev/shm and the open ports are compared with those before.
    if (::geteuid() == 0) {
      enter_private_mounts();
      enter_private_network();
    }
    FaultTrials trials(settings, scenarios);
    std::uint64_t seed = 0;
    while (!end_requested() && ::recv(socket.get(), &seed, sizeof seed, 0) == sizeof seed) {
      FaultResult result = trials.run(seed);
      const std::size_t most = kLongestResult / 3;  // JSON may need several bytes for one
      if (result.failure.size() > most) {
        result.failure = result.failure.substr(0, most / 2) + "\n…\n" +
                         result.failure.substr(result.failure.size() - most / 2);
      }
      const std::string text = to_json(result);
      ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    }
    return 0;
  } catch (const EndRequested&) {
    return 130;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep_chaos: %s\n", error.what());
    return 2;
  }

  FileDescriptor socket_;
  process::ChildProcess process_;
  bool busy_ = false;
};

void handle_signal(int) {
  request_end();
}

// The command that repeats one fault. It names the scenario, because the seed alone chooses out of
// those that the machine and the user's rights allow.
std::string repeating(const ChaosArguments& arguments, const FaultResult& result) {
  std::string words = result.name;
  std::ranges::replace(words, ' ', ',');
  std::string text = fmt::format("lockstep_chaos --repeat {} --only {}", result.seed, words);
  if (arguments.without_restarts) text += " --without-restarts";
  if (arguments.elastic) text += " --elastic";
  return text;
}

std::string times(const char* what, const std::vector<double>& seconds) {
  std::string text;
  for (const double time : seconds)
    text += fmt::format("{} {:.2f} s", text.empty() ? "" : ",", time);
  return text.empty() ? "" : fmt::format(", {}{}", what, text);
}

void print(const ChaosArguments& arguments, const FaultResult& result, int number) {
  const bool failed = !result.failure.empty();
  std::cout << fmt::format(
      "chaos: {}: {} {}{}{}{} ({:.1f} s)\n", number, result.name,
      failed ? "FAILED" : result.outcome,
      result.recoveries == 0 ? "" : fmt::format(", {} recoveries", result.recoveries),
      times("detected after", result.detection), times("recovered after", result.recovery),
      result.seconds);
  if (failed) {
    std::cout << "chaos: " << result.failure
              << "\nchaos: repeat it with: " << repeating(arguments, result) << '\n';
  }
  std::cout << std::flush;
}

// Whether network namespaces can be made here.
bool can_make_hosts() {
  if (::geteuid() != 0) return false;
  try {
    const HostPair hosts;
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Whether mounts can be made here; tried in a process of its own.
bool can_mount() {
  if (::geteuid() != 0) return false;
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(enter_private_mounts() ? 1 : 0);
  return pid > 0 && process::ChildProcess(pid).reap().ok();
}

class ChaosRun {
 public:
  ChaosRun(const ChaosArguments& arguments, const std::vector<Scenario>& scenarios)
      : arguments_(arguments), start_(Clock::now()) {
    if (!arguments.repeat) seed_ = arguments.seed.value_or(std::random_device()());
    for (int job = 0; job < arguments.jobs; ++job) {
      jobs_.push_back(std::make_unique<JobProcess>(
          TrialSettings{.programs = arguments.programs,
                        .work = work_.path() / fmt::format("job{}", job),
                        .restarts = !arguments.without_restarts,
                        .cores = cores_of_job(job)},
          scenarios, jobs_));
    }
  }
  ~ChaosRun() {
    for (const auto& job : jobs_) job->end();
  }
  ChaosRun(const ChaosRun&) = delete;
  ChaosRun& operator=(const ChaosRun&) = delete;

  std::uint64_t seed() const { return seed_; }

  // Returns the exit code.
  int run() {
    const int wanted = arguments_.repeat ? 1 : arguments_.faults;
    try {
      while (true) {
        give_work(wanted);
        if (std::ranges::none_of(jobs_, [](const auto& job) { return job->is_busy(); })) break;
        take_results();
      }
    } catch (const Error& error) {
      // A run without a fault failed, or a job was killed.
      if (!end_requested()) {
        work_.keep();
        std::cerr << "lockstep_chaos: " << error.what() << '\n';
      }
      broken_ = true;
    }
    std::cout << report_.table();
    if (report_.missed() > 0) {
      std::cout << fmt::format("chaos: {} more runs were over before their fault\n",
                               report_.missed());
    }
    std::cout << report_.last_line() << std::endl;
    if (end_requested()) return 130;
    // A fault that is repeated may come too late. Otherwise nothing was tested.
    const bool tested = arguments_.repeat || report_.faults() > 0;
    if (!tested && !broken_) std::cerr << "lockstep_chaos: no fault was injected\n";
    const auto never = report_.never_injected();
    for (const std::string& kind : never) {
      std::cerr << fmt::format("lockstep_chaos: {}: all runs were over before their fault\n", kind);
    }
    return broken_ || !tested || !never.empty() || report_.failures() > 0 ? 1 : 0;
  }

 private:
  bool time_is_over() const {
    return arguments_.minutes &&
           Clock::now() - start_ > std::chrono::duration<double>(60 * *arguments_.minutes);
  }

  void give_work(int wanted) {
    for (const auto& job : jobs_) {
      if (job->is_busy() || end_requested() || time_is_over()) continue;
      const int under_way = static_cast<int>(
          std::ranges::count_if(jobs_, [](const auto& other) { return other->is_busy(); }));
      if (report_.faults() + report_.failures_without_fault() + under_way >= wanted) return;
      if (arguments_.repeat && index_ > 0) return;
      job->give(arguments_.repeat ? *arguments_.repeat : derive_seed(seed_, index_));
      ++index_;
    }
  }

  void take_results() {
    std::vector<pollfd> polls;
    for (const auto& job : jobs_)
      polls.push_back({.fd = job->fd(), .events = POLLIN, .revents = 0});
    if (::poll(polls.data(), polls.size(), 1000) < 0 && errno != EINTR) {
      throw Error("poll: {}", std::strerror(errno));
    }
    for (std::size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].revents == 0 || !jobs_[i]->is_busy()) continue;
      const FaultResult result = jobs_[i]->take();
      report_.add(result);
      if (!result.failure.empty()) work_.keep();
      print(arguments_, result, ++printed_);
    }
  }

  const ChaosArguments& arguments_;
  Clock::time_point start_;
  WorkFolder work_;
  std::uint64_t seed_ = 0;
  std::vector<std::unique_ptr<JobProcess>> jobs_;
  ChaosReport report_;
  std::uint64_t index_ = 0;
  int printed_ = 0;
  bool broken_ = false;
};

int run_chaos(const ChaosArguments& arguments) {
  const ScenarioOptions options{.restarts = !arguments.without_restarts,
                                .elastic = arguments.elastic,
                                .namespaces = can_make_hosts(),
                                .mounts = can_mount(),
                                .only = arguments.only};
  const auto all = scenarios(options);
  if (arguments.list) {
    for (const Scenario& scenario : all) std::cout << scenario.name() << '\n';
    return 0;
  }
  struct sigaction action = {};
  action.sa_handler = handle_signal;  // without SA_RESTART, so that waits end
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
  ChaosRun run(arguments, all);
  if (const std::size_t skipped = count_impossible(options); skipped > 0) {
    const std::string what = fmt::format(
        "{} of {} scenarios are not tested here: network namespaces {}, mounts {}; they need root "
        "and the command ip",
        skipped, skipped + all.size(), options.namespaces ? "work" : "do not work",
        options.mounts ? "work" : "do not work");
    std::cout << "chaos: " << what << '\n';
    // scripts/test lists what was skipped.
    if (const char* const list = std::getenv("LOCKSTEP_SKIPPED")) {
      std::ofstream(list, std::ios::app) << "chaos: " << what << '\n';
    }
  }
  if (!arguments.repeat) {
    std::cout << fmt::format("chaos: {} faults out of {} scenarios, --seed {}\n", arguments.faults,
                             all.size(), run.seed());
  }
  return run.run();
}

}  // namespace
}  // namespace lockstep::chaos

int main(int argc, char** argv) try {
  lockstep::chaos::ChaosArguments arguments;
  arguments.programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  CLI::App app(
      "Disturbs training runs at random moments. Each must end as promised, with the weights and "
      "logs of the undisturbed run, and leave nothing behind.");
  app.add_option("--faults", arguments.faults, "How many faults are injected")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seed", arguments.seed, "Chooses the faults; default: a random one, printed");
  auto* const repeat =
      app.add_option("--repeat", arguments.repeat, "Injects the one fault that has this seed");
  app.add_option("--minutes", arguments.minutes, "Starts no more runs after this time")
      ->check(CLI::PositiveNumber);
  app.add_option("--only", arguments.only,
                 "Only scenarios with these words of --list, e.g. shm,kill or gan,worker,stop");
  app.add_option("--jobs", arguments.jobs, "Runs at the same time, on two cores each")
      ->check(CLI::Range(1, 64))
      ->excludes(repeat)
      ->capture_default_str();
  app.add_flag("--list", arguments.list, "Prints the scenarios");
  app.add_flag("--without-restarts", arguments.without_restarts,
               "Runs have no --max-restarts: a lost worker ends the run, which is then resumed");
  app.add_flag("--elastic", arguments.elastic, "Two nodes are started with --nnodes 1:2, not 2");
  app.add_option("--programs", arguments.programs,
                 "Folder of mnist, gan and lockstep; default: the folder of this program");
  CLI11_PARSE(app, argc, argv);
  arguments.programs = std::filesystem::absolute(arguments.programs);
  return lockstep::chaos::run_chaos(arguments);
} catch (const std::exception& error) {
  std::cerr << "lockstep_chaos: " << error.what() << '\n';
  return 2;
}
