// lockstep launch: starts any program, one process per rank, on this host or on several.
#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <iostream>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "lockstep/base/text.h"
#include "lockstep/command/command.h"
#include "lockstep/command/subcommand.h"
#include "lockstep/command/torchrun_habits.h"
#include "lockstep/config/value.h"
#include "lockstep/engine/devices.h"
#include "lockstep/launcher/node_member.h"
#include "lockstep/launcher/nodes.h"
#include "lockstep/launcher/programs.h"
#include "lockstep/launcher/rank_environment.h"
#include "lockstep/launcher/restarts.h"
#include "lockstep/launcher/signals.h"
#include "lockstep/process/affinity.h"
#include "lockstep/process/environment.h"
#include "lockstep/process/memory_file.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/rendezvous/network.h"
#include "lockstep/rendezvous/token.h"

namespace lockstep::command {
namespace {

struct LaunchArguments {
  std::string processes = "auto";
  std::string node_count = "1";  // as the user wrote it
  NodeCount nodes;
  int node_rank = 0;
  bool has_node_rank = false;
  std::string endpoint;  // one, or several with commas between
  std::string backend = "static";
  bool standalone = false;
  bool module = false;
  std::optional<std::string> redirects;  // streams that are written to files only
  std::optional<std::string> tee;        // streams that are written to files and shown
  bool no_python = false;                // start the program as it is, even if it ends in .py
  std::string role = "default";
  std::string master_address;
  int master_port = 0;
  std::string rdzv_id;
  std::optional<std::filesystem::path> token_file;
  bool allow_guessable = false;
  std::string interface;
  int max_restarts = 0;
  std::optional<std::string> log_dir;
  bool prefix = true;
  std::optional<double> grace;  // default: kGrace, or kRestartGrace if there will be a restart
  double timeout = 300;
  std::vector<std::string> command;
};

// Seconds that ranks have to end after one failed. If they are started again, all that is worth
// keeping is in memory already, and every moment of waiting is lost.
constexpr double kGrace = 1.5;
constexpr double kRestartGrace = 0.2;
// A node that sends nothing for this time is lost, unless --timeout is shorter.
constexpr double kSilenceSeconds = 10;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

int process_count(const std::string& text) {
  if (text == "gpu" || text == "auto") {
    const UsableGpus gpus = usable_gpus();
    if (gpus.count > 0) return gpus.count;
    if (text == "gpu") throw ConfigError("--nproc-per-node gpu: no GPU to use: {}", gpus.why_none);
  }
  if (text == "auto" || text == "cpu") return process::usable_cores();
  const auto count = config::parse_int(text);
  if (!count || *count < 1 || *count > 4096) {
    throw ConfigError("--nproc-per-node: expected a positive integer, cpu, gpu or auto, got '{}'",
                      text);
  }
  return static_cast<int>(*count);
}

rendezvous::Endpoint parse_endpoint(const std::string& text, bool several_nodes) {
  const std::size_t colon = text.rfind(':');
  // Without a port, torchrun's default is used. Port 0 means any free port, which is possible only
  // on one node.
  constexpr std::int64_t kUsualPort = 29400;
  const auto port = colon == std::string::npos ? std::optional(kUsualPort)
                                               : config::parse_int(text.substr(colon + 1));
  if (!port || *port < (several_nodes ? 1 : 0) || *port > 65535) {
    throw ConfigError("--rdzv-endpoint: expected host:port, got '{}'", text);
  }
  rendezvous::Endpoint endpoint{.address = text.substr(0, colon), .port = static_cast<int>(*port)};
  if (endpoint.address.starts_with('[') && endpoint.address.ends_with(']')) {
    endpoint.address = endpoint.address.substr(1, endpoint.address.size() - 2);
  }
  return endpoint;
}

// --rdzv-endpoint host:port,..., or --master-addr and --master-port.
std::vector<rendezvous::Endpoint> endpoints_of(const LaunchArguments& options) {
  const bool several_nodes = options.nodes.most > 1;
  std::vector<rendezvous::Endpoint> endpoints;
  std::string_view rest = options.endpoint;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    endpoints.push_back(parse_endpoint(std::string(one), several_nodes));
  }
  if (endpoints.empty()) {
    endpoints.push_back({.address = options.master_address, .port = options.master_port});
  }
  for (rendezvous::Endpoint& endpoint : endpoints) {
    if (several_nodes && (endpoint.address.empty() || endpoint.port == 0)) {
      throw ConfigError(
          "--nnodes {}: expected --rdzv-endpoint host:port, node 0's address and a port that is "
          "free there, the same on all nodes",
          options.node_count);
    }
    if (endpoint.port < 0 || endpoint.port > 65535) {
      throw ConfigError("--master-port: expected 1 to 65535, got {}", endpoint.port);
    }
    if (endpoint.address.empty()) endpoint.address = "127.0.0.1";
  }
  if (endpoints.size() > 1 && !several_nodes) {
    throw ConfigError("--rdzv-endpoint: expected one endpoint for one node, got '{}'",
                      options.endpoint);
  }
  return endpoints;
}

// Where the lines of standard output (0) and error (1) go.
struct Output {
  std::array<bool, 2> logged = {false, false};
  std::array<bool, 2> shown = {true, true};
};

// With --log-dir only, both streams go to files and are not shown.
Output output_of(const LaunchArguments& options) {
  Output output;
  if (!options.log_dir) {
    if (!options.redirects && !options.tee) return output;
    throw ConfigError("{}: expected --log-dir, the folder for the ranks' files, in addition",
                      options.tee ? "--tee" : "--redirects");
  }
  const auto redirected = parse_streams("--redirects", options.redirects.value_or("3"));
  const auto teed = parse_streams("--tee", options.tee.value_or("0"));
  for (std::size_t stream = 0; stream < 2; ++stream) {
    output.logged[stream] = redirected[stream] || teed[stream];
    output.shown[stream] = teed[stream] || !redirected[stream];
  }
  return output;
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

class NodeLauncher {
 public:
  explicit NodeLauncher(const LaunchArguments& options)
      : options_(options),
        processes_(process_count(options.processes)),
        endpoints_(endpoints_of(options)),
        output_(output_of(options)),
        environment_(process::current_environment()) {
    if (options.node_rank < 0 || options.node_rank >= options.nodes.most) {
      throw ConfigError("--node-rank: expected 0 to {}, got {}", options.nodes.most - 1,
                        options.node_rank);
    }
    if (options.max_restarts < 0) {
      throw ConfigError("--max-restarts: expected an integer >= 0, got {}", options.max_restarts);
    }
    if (options.standalone && options.nodes.most > 1) {
      throw ConfigError("--standalone means one node, but --nnodes is {}: leave one of them out",
                        options.node_count);
    }
    check_seconds("--grace", options.grace.value_or(kGrace));
    check_seconds("--timeout", options.timeout);
    if (options.nodes.most > 1 && options.timeout < 1) {
      throw ConfigError("--timeout: expected at least 1 second with several nodes, got {}",
                        options.timeout);
    }
    if (!options.interface.empty())
      environment_[rendezvous::kInterfaceVariable] = options.interface;
    if (options.max_restarts > 0 || is_elastic()) memory_.emplace();
    if (options.nodes.most > 1) join_nodes();
  }

  int run() {
    if (member_) return run_elastic();
    for (int attempt = 0;; ++attempt) {
      const launcher::AttemptSettings settings = meet(attempt);
      const launcher::ProgramsEnd ended =
          run_attempt(attempt, settings, nodes_ ? nodes_->failure_fd() : -1);
      if (ended.interrupted != 0) {
        report(ended, std::nullopt);
        return interrupted_by(ended.interrupted);
      }
      const auto failure = conclude(attempt, ended);
      if (!failure) {
        say("all {} ended well after {}", ranks_of(settings.world_size),
            format_duration(seconds_of(ended)));
        return kDone;
      }
      failures_.push_back(*failure);
      failed_at_ = ended.failed.value_or(std::chrono::steady_clock::now());
      const launcher::RestartDecision next =
          launcher::decide_restart(failures_, options_.max_restarts);
      if (!next.restart || failure->rank < 0) {
        report(ended, *failure);
        if (options_.max_restarts > 0 && failure->rank >= 0) report_all(next);
        return failure->shell_code;
      }
      if (const int signal = launcher::Signals().wait(next.wait)) return interrupted_by(signal);
    }
  }

 private:
  template <typename... Args>
  static void say(fmt::format_string<Args...> format, Args&&... args) {
    write_all(STDERR_FILENO,
              "lockstep launch: " + fmt::format(format, std::forward<Args>(args)...) + "\n");
  }

  static void check_seconds(const char* option, double seconds) {
    if (seconds >= 0 && seconds < 1e7) return;
    throw ConfigError("{}: expected a number of seconds >= 0, got {}", option, seconds);
  }

  static std::string ranks_of(int count) {
    return count == 1 ? "1 rank" : fmt::format("{} ranks", count);
  }

  // Whether nodes may come and go during the run.
  bool is_elastic() const {
    return options_.nodes.least != options_.nodes.most || endpoints_.size() > 1;
  }

  void join_nodes() {
    std::vector<launcher::NodeEndpoint> places;
    bool beyond_host = false;
    for (const rendezvous::Endpoint& endpoint : endpoints_) {
      const rendezvous::NetworkChoice network = rendezvous::choose_network(
          {.address = endpoint.address, .interface = options_.interface}, environment_);
      beyond_host = beyond_host || network.beyond_host;
      places.push_back({.address = endpoint, .network = network});
    }
    token_ = rendezvous::resolve_token({.file = options_.token_file,
                                        .run = options_.rdzv_id,
                                        .place = to_string(endpoints_.front()),
                                        .beyond_host = beyond_host,
                                        .allow_guessable = options_.allow_guessable},
                                       environment_);
    const auto timeout = milliseconds(options_.timeout);
    const auto silence = milliseconds(std::min(options_.timeout, kSilenceSeconds));
    if (!is_elastic()) {
      nodes_.emplace(launcher::NodesOptions{.nodes = options_.nodes.most,
                                            .node_rank = options_.node_rank,
                                            .endpoint = endpoints_.front(),
                                            .network = places.front().network,
                                            .token = token_,
                                            .run = options_.rdzv_id,
                                            .timeout = timeout,
                                            .silence = silence});
      return;
    }
    member_.emplace(launcher::NodeMemberOptions{
        .endpoints = places,
        .own_endpoint = options_.has_node_rank ? std::optional(options_.node_rank) : std::nullopt,
        .token = token_,
        .run = options_.rdzv_id,
        .ranks = processes_,
        .cores = process::usable_cores(),
        .least = options_.nodes.least,
        .most = options_.nodes.most,
        .max_restarts = options_.max_restarts,
        .timeout = timeout,
        .silence = silence,
        .grace = milliseconds(options_.grace.value_or(kRestartGrace)),
        .points = [this] { return memory_->points(); },
        .say = [](const std::string& line) { say("{}", line); }});
  }

  // The coordinator decides which nodes work together, and when all begin anew.
  int run_elastic() {
    while (true) {
      const auto next = member_->next();
      if (const auto* const over = std::get_if<launcher::RunEnd>(&next)) {
        say("{}", over->text);
        return over->code;
      }
      const auto& [part, master] = std::get<launcher::BegunGeneration>(next);
      const int attempt = part.generation.number - 1;
      const int nodes = static_cast<int>(part.generation.nodes.size());
      why_ = part.why.empty()
                 ? ""
                 : fmt::format("{}; generation {} has {} with {}", part.why, part.generation.number,
                               nodes == 1 ? "1 node" : fmt::format("{} nodes", nodes),
                               ranks_of(part.world_size));
      // Not what this node itself has seen: its ranks may have failed only because of others.
      if (part.cause) tell_ranks(*part.cause, memory_->failures());
      const launcher::ProgramsEnd ended =
          run_attempt(attempt,
                      {.first_rank = part.first_rank,
                       .world_size = part.world_size,
                       .master = master,
                       .run_id = part.run_id,
                       .token = rendezvous::derive_token(token_, "ranks of run " + part.run_id),
                       .node_rank = part.node_rank,
                       .nodes = nodes,
                       .shards = part.state.shards,
                       .threads = part.state.threads},
                      member_->stop_fd());
      if (ended.interrupted != 0) {
        report(ended, std::nullopt);
        return interrupted_by(ended.interrupted);
      }
      failed_at_ = ended.failed.value_or(std::chrono::steady_clock::now());
      const auto failure = launcher::find_cause(attempt, ended, memory_->failures());
      if (failure) report(ended, *failure);
      const bool well = !failure && std::ranges::none_of(ended.ranks, &launcher::RankEnd::stopped);
      member_->ended({.generation = part.generation.number, .well = well, .failure = failure});
    }
  }

  int interrupted_by(int signal) {
    if (member_) member_->leave(fmt::format("interrupted by signal {}", signal), 128 + signal);
    if (nodes_) nodes_->abandon(fmt::format("interrupted by signal {}", signal));
    say("interrupted by signal {} ({})", signal, ::strsignal(signal));
    return 128 + signal;
  }

  static double seconds_of(const launcher::ProgramsEnd& ended) {
    double longest = 0;
    for (const auto& rank : ended.ranks) longest = std::max(longest, rank.seconds);
    return longest;
  }

  // The failure that ended the attempt, on any node. Nothing if all ranks ended well.
  std::optional<launcher::AttemptFailure> conclude(int attempt,
                                                   const launcher::ProgramsEnd& ended) {
    const auto notes = memory_ ? memory_->failures() : std::vector<process::FailureNote>();
    std::optional<launcher::AttemptFailure> failure = launcher::find_cause(attempt, ended, notes);
    if (nodes_) {
      try {
        failure = nodes_->conclude(attempt, failure);
      } catch (const CommError&) {
        failure = launcher::AttemptFailure{.how = "the launcher of node 0 is gone"};
      }
    }
    const bool stopped = std::ranges::any_of(ended.ranks, &launcher::RankEnd::stopped);
    if (!failure && stopped) failure = launcher::AttemptFailure{.how = "the ranks were stopped"};
    if (failure && memory_) tell_ranks(*failure, notes);
    return failure;
  }

  // The ranks of the next attempt find in the memory why there is one.
  void tell_ranks(const launcher::AttemptFailure& failure,
                  const std::vector<process::FailureNote>& notes) {
    const bool known = std::ranges::any_of(notes, [&](const process::FailureNote& note) {
      return note.attempt == failure.attempt && note.rank == failure.rank &&
             note.kind == failure.kind;
    });
    if (known) return;
    memory_->note_failure({.attempt = failure.attempt,
                           .rank = failure.rank,
                           .kind = failure.kind,
                           .epoch = failure.epoch,
                           .batch = failure.batch,
                           .reason = failure.how});
  }

  launcher::AttemptSettings meet(int attempt) {
    if (nodes_) return nodes_->meet(attempt, processes_);
    // The port is held until the ranks have ended, so that the system gives it to no other program
    // before rank 0 listens there.
    const rendezvous::Endpoint& endpoint = endpoints_.front();
    if (endpoint.port == 0)
      reserved_ = rendezvous::reserve_port({.address = rendezvous::kLoopback});
    return {
        .first_rank = 0,
        .world_size = processes_,
        .master = {.address = endpoint.address,
                   .port = endpoint.port != 0 ? endpoint.port : rendezvous::local_port(reserved_)},
        .run_id = launcher::random_run_id(),
        .token = rendezvous::random_token()};
  }

  launcher::ProgramsEnd run_attempt(int attempt, const launcher::AttemptSettings& settings,
                                    int stop_fd) {
    launcher::ProgramsOptions programs{.command = options_.command,
                                       .environments = {},
                                       .first_rank = settings.first_rank,
                                       .log_dir = options_.log_dir,
                                       .logged = output_.logged,
                                       .append_logs = attempt > 0,
                                       .on_lines = {}};
    const bool last = !is_elastic() && attempt >= options_.max_restarts;
    programs.grace = milliseconds(options_.grace.value_or(last ? kGrace : kRestartGrace));
    programs.stopped_grace = milliseconds(options_.timeout);
    if (nodes_) programs.others_ended = [this, attempt] { return nodes_->others_ended(attempt); };
    if (member_) {
      const int generation = attempt + 1;
      programs.others_ended = [this, generation] { return member_->others_ended(generation); };
    }
    programs.on_started = [this] { say_restarted(); };
    if (memory_) {
      programs.inherited_fd = memory_->descriptor();
      memory_->begin_attempt(
          {.attempt = attempt, .began = std::chrono::steady_clock::now(), .failed = failed_at_});
    }
    for (int local = 0; local < processes_; ++local) {
      programs.environments.push_back(launcher::rank_environment(
          environment_, {.topology = {.rank = settings.first_rank + local,
                                      .world_size = settings.world_size,
                                      .local_rank = local,
                                      .local_size = processes_},
                         .node_rank = settings.node_rank,
                         .nodes = settings.nodes,
                         .master = settings.master,
                         .run_id = settings.run_id,
                         .token = settings.token,
                         .restarts = attempt,
                         .max_restarts = options_.max_restarts,
                         .threads = std::max(1, process::usable_cores() / processes_),
                         .role = options_.role,
                         .shards = settings.shards,
                         .shard_threads = settings.threads,
                         .is_elastic = is_elastic(),
                         .memory = memory_ ? std::optional(memory_->descriptor()) : std::nullopt}));
    }
    const bool prefix = options_.prefix && settings.world_size > 1;
    programs.on_lines = [prefix, shown = output_.shown](int rank, std::size_t stream,
                                                        const std::vector<std::string>& lines) {
      if (!shown[stream]) return;
      std::string text;
      for (const std::string& line : lines) {
        text += prefix ? fmt::format("[rank {}] {}\n", rank, line) : line + "\n";
      }
      write_all(stream == 0 ? STDOUT_FILENO : STDERR_FILENO, text);
    };
    try {
      return launcher::run_programs(programs, reaper_, stop_fd);
    } catch (const Error& error) {
      if (nodes_) nodes_->abandon(error.what());
      if (member_) member_->leave(error.what());
      throw;
    }
  }

  // One line per restart.
  void say_restarted() const {
    const std::string why = failures_.empty() ? why_
                                              : fmt::format("restart {} of {}: {}",
                                                            failures_.size(), options_.max_restarts,
                                                            launcher::to_string(failures_.back()));
    if (why.empty()) return;
    // A node that comes later did not see the failure.
    const std::chrono::duration<double> after =
        failed_at_ ? std::chrono::steady_clock::now() - *failed_at_ : std::chrono::nanoseconds(0);
    say("{}; the ranks were started{}", why,
        failed_at_ ? fmt::format(" {:.2f} s after the failure", after.count()) : "");
  }

  // Prints how each rank ended; the rank that failed with its last lines.
  void report(const launcher::ProgramsEnd& ended,
              const std::optional<launcher::AttemptFailure>& failure) const {
    for (const launcher::RankEnd& rank : ended.ranks) {
      if (!rank.suspended) continue;
      say("rank {} is the likely cause: a signal had stopped it (SIGSTOP or Ctrl-Z), so it did not "
          "answer the other ranks",
          rank.rank);
    }
    std::optional<std::size_t> first = ended.first_failure;
    for (std::size_t i = 0; failure && i < ended.ranks.size(); ++i) {
      const launcher::RankEnd& rank = ended.ranks[i];
      if (rank.rank == failure->rank && !rank.stopped && !rank.end.ok()) first = i;
    }
    if (first) {
      const launcher::RankEnd& rank = ended.ranks[*first];
      say("rank {} failed first: {}, after {}{}", rank.rank, to_string(rank.end),
          format_duration(rank.seconds),
          rank.last_lines.empty() ? "; it had printed nothing" : "; its last lines:");
      for (const std::string& line : rank.last_lines) say("  | {}", line);
    }
    for (std::size_t i = 0; i < ended.ranks.size(); ++i) {
      if (first == i) continue;
      const launcher::RankEnd& rank = ended.ranks[i];
      say("rank {}: {}{}", rank.rank, to_string(rank.end), rank.stopped ? ", told to stop" : "");
    }
    if (first || !failure) return;
    const bool elsewhere =
        failure->rank >= 0 && std::ranges::find(ended.ranks, failure->rank,
                                                &launcher::RankEnd::rank) == ended.ranks.end();
    say("{}", elsewhere
                  ? fmt::format("rank {} failed on another node: {}", failure->rank, failure->how)
                  : launcher::to_string(*failure));
  }

  // Prints why there is no further attempt, and how each one failed.
  void report_all(const launcher::RestartDecision& decision) const {
    say("it is not started again: {}", decision.why_not);
    for (std::size_t i = 0; i < failures_.size(); ++i) {
      say("  attempt {}: {}", i + 1, launcher::to_string(failures_[i]));
    }
  }

  LaunchArguments options_;
  int processes_;
  std::vector<rendezvous::Endpoint> endpoints_;
  Output output_;
  process::Environment environment_;
  FileDescriptor reserved_;        // the port of an attempt's ranks, if all are on this host
  launcher::OrphanReaper reaper_;  // it forks, so it comes before connections and threads
  std::optional<process::MemoryFile> memory_;  // only if there may be restarts
  std::string token_;                          // of the launchers of several nodes
  std::optional<launcher::Nodes> nodes_;       // if the number of nodes is fixed
  std::string why_;  // why the ranks are started again, if the coordinator decides
  std::vector<launcher::AttemptFailure> failures_;                  // of all attempts
  std::optional<std::chrono::steady_clock::time_point> failed_at_;  // when the last one was noticed
  std::optional<launcher::NodeMember> member_;  // if the number of nodes may change
};

void check_command(const CLI::App& app, const std::vector<std::string>& command) {
  if (command.empty()) {
    throw CLI::RequiredError("a program to start, and its arguments, after the options");
  }
  if (!command[0].starts_with('-')) return;
  std::vector<std::string> known;
  for (const auto* const option : app.get_options()) {
    for (const auto& name : option->get_lnames()) known.push_back("--" + name);
  }
  if (const auto instead = instead_of_torchrun_option(command[0])) {
    throw CLI::ValidationError(*instead);
  }
  throw CLI::ExtrasError("launch", {command[0] + ": " + suggest(command[0], known)});
}

// Checks options that depend on each other, and completes the command. Throws ConfigError.
void resolve(LaunchArguments& options) {
  options.nodes = parse_node_count(options.node_count);
  const bool is_fixed =
      options.nodes.least == options.nodes.most && options.endpoint.find(',') == std::string::npos;
  if (options.backend == "c10d" && is_fixed && options.nodes.most > 1 && !options.has_node_rank) {
    throw ConfigError(
        "--rdzv-backend c10d: torchrun numbers the nodes by itself; here each node needs its "
        "number: expected --node-rank, from 0 to {}",
        options.nodes.most - 1);
  }
  if (options.module && options.no_python) {
    throw ConfigError("--module starts Python: leave out --module or --no-python");
  }
  if (options.module) {
    options.command.insert(options.command.begin(), {"python3", "-m"});
  } else if (!options.no_python) {
    check_is_program(options.command);
  }
}

int launch_programs(const LaunchArguments& options) {
  // Some supervisors start their programs with SIGCHLD ignored. The launcher waits for its
  // children.
  ::signal(SIGCHLD, SIG_DFL);
  try {
    return NodeLauncher(options).run();
  } catch (const launcher::StartError& error) {
    std::cerr << "lockstep: " << error.what() << '\n';
    return error.shell_code();
  }
}

class LaunchFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string name) const override {
    return "Usage: " + name + " [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n";
  }
};

}  // namespace

void add_launch(CLI::App& app, Action& chosen, const std::vector<std::string>& after_dashes) {
  auto* const command =
      app.add_subcommand("launch", "Start any program, one process per rank, as torchrun does");
  command->formatter(std::make_shared<LaunchFormatter>());
  command->footer(R"(
The program finds its rank in torchrun's variables: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
MASTER_PORT and so on. When one rank fails, the other ranks are ended. With --max-restarts, all are
then started again. What would fail again is not: exit codes 2, 126 and 127, and an exception or a
lack of memory that a program of Lockstep had at the same batch before.

Exit codes:
  0         all ranks ended well
  1         a program failed, or the launcher of another node is gone
  2         a wrong option, of the launcher or of the program
  3         the program ended because another process of the run had failed
  126, 127  the program cannot be executed, or does not exist
  128 + N   signal N ended the program, or interrupted the launcher
  others    the exit code of the rank that failed first

Examples:
  lockstep launch --nproc-per-node 2 ./program --its-own options
  lockstep launch --nproc-per-node 2 python3 script.py
  lockstep launch --nnodes 2 --node-rank 0 --rdzv-endpoint 10.0.0.1:29400 \
      --token-file ~/.lockstep-token ./program
  lockstep launch --nnodes 1:3 --rdzv-endpoint 10.0.0.1:29400,10.0.0.2:29400 --max-restarts 5 ./program
  lockstep launch --max-restarts 3 --log-dir logs lockstep run -C mnist.yml --ddp --autoresume last)");
  auto options = std::make_shared<LaunchArguments>();
  command
      ->add_option("--nproc-per-node,--nproc_per_node", options->processes,
                   "Processes on this node; auto: one per GPU, else one per core")
      ->capture_default_str();
  command
      ->add_option("--nnodes", options->node_count,
                   "Number of nodes; MIN:MAX if nodes may come and go during the run")
      ->capture_default_str();
  auto* const node_rank = command
                              ->add_option("--node-rank,--node_rank", options->node_rank,
                                           "Number of this node, from 0; not needed with MIN:MAX")
                              ->capture_default_str();
  auto* const endpoint =
      command->add_option("--rdzv-endpoint,--rdzv_endpoint", options->endpoint,
                          "host:port of node 0, which all nodes connect to; more of them, with "
                          "commas between, so that the run can survive the loss of that node");
  command
      ->add_option("--master-addr,--master_addr", options->master_address,
                   "Only the host of --rdzv-endpoint")
      ->excludes(endpoint);
  command
      ->add_option("--master-port,--master_port", options->master_port,
                   "Only the port of --rdzv-endpoint")
      ->excludes(endpoint);
  command->add_option("--rdzv-id,--rdzv_id", options->rdzv_id,
                      "The run's name, the same on all nodes; it is not a secret");
  command->add_option("--token-file,--token_file", options->token_file,
                      "File with the secret of all nodes, which only its owner may read; default: "
                      "LOCKSTEP_TOKEN, or the file that LOCKSTEP_TOKEN_FILE names");
  command->add_flag("--allow-guessable-token,--allow_guessable_token", options->allow_guessable,
                    "Allow several nodes without a secret: any process that can connect to node 0 "
                    "can join the run");
  command->add_option("--interface", options->interface,
                      "Network interface or address of this node for the launchers and the ranks; "
                      "default: LOCKSTEP_INTERFACE, or all");
  command
      ->add_option("--rdzv-backend,--rdzv_backend", options->backend,
                   "static, or c10d with --node-rank on each node; both do the same")
      ->check(CLI::IsMember({"c10d", "static"}));
  command->add_flag("--standalone", options->standalone,
                    "One node and any free port, which is also the default");
  command->add_flag("-m,--module", options->module, "The program is a Python module: python3 -m");
  command->add_flag("--no-python,--no_python", options->no_python,
                    "Start the program as it is, even if it looks like a Python script");
  command->add_option("-r,--redirects", options->redirects,
                      "With --log-dir, streams that go to files only: 1 standard output, "
                      "2 standard error, 3 both");
  command->add_option("-t,--tee", options->tee,
                      "With --log-dir, streams that go to files and are also shown: 1, 2 or 3");
  command->add_option("--role", options->role, "ROLE_NAME of the ranks")->capture_default_str();
  command
      ->add_option("--max-restarts,--max_restarts", options->max_restarts,
                   "How many times all ranks are started again after a failure")
      ->capture_default_str();
  command->add_option("--log-dir,--log_dir", options->log_dir,
                      "Output goes to rank<N>/stdout.log and stderr.log in this folder");
  command->add_flag("!--no-prefix", options->prefix,
                    "Print the ranks' lines without [rank N] in front");
  command->add_option(
      "--grace", options->grace,
      "Seconds that ranks have to end after one failed; default: 1.5, or 0.2 if they are "
      "started again");
  command
      ->add_option("--timeout", options->timeout,
                   "Seconds to wait for other nodes, and for a stopped rank (SIGSTOP) when all "
                   "others are done")
      ->capture_default_str();
  command->prefix_command();  // all words from the program's name on belong to the program
  command->callback([command, node_rank, options, after_dashes, &chosen] {
    // Either "launch … -- program …", or "launch … program …", where a "--" is the program's.
    options->command = command->remaining();
    const bool separated = options->command.empty() && !after_dashes.empty();
    options->command.insert(options->command.end(), after_dashes.begin() + (separated ? 1 : 0),
                            after_dashes.end());
    check_command(*command, options->command);
    options->has_node_rank = node_rank->count() > 0;
    chosen = [options] {
      resolve(*options);
      return launch_programs(*options);
    };
  });
}

}  // namespace lockstep::command
