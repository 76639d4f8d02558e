#include "tests/chaos/training_run.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "lockstep/base/file.h"

namespace lockstep::chaos {
namespace fs = std::filesystem;
namespace {

constexpr int kRestarts = 5;

bool is_forked(Transport transport) {
  return transport == Transport::kShm || transport == Transport::kGloo;
}

bool has_nodes(Transport transport) {
  return transport == Transport::kNodes || transport == Transport::kElastic;
}

void append(std::vector<std::string>& words, std::initializer_list<std::string> more) {
  words.insert(words.end(), more);
}

}  // namespace

int epochs_of(TrainedProgram program) {
  return program == TrainedProgram::kMnist ? 2 : 6;
}

TrainingRun::TrainingRun(const TrainingRunOptions& options)
    : options_(options), start_(Clock::now()) {
  const std::size_t nodes = has_nodes(options.transport) ? 2 : 1;
  for (std::size_t node = 0; node < nodes; ++node) {
    std::map<std::string, std::string> variables = {{kMarkVariable, options.mark},
                                                    {"TMPDIR", options.temporary.string()}};
    // This launcher chooses the threads for the case that the other node never comes. A resume on
    // one host has one per rank, and other threads may give other bits.
    if (options.transport == Transport::kElastic) variables["LOCKSTEP_THREADS"] = "1";
    if (!options.hook.empty()) {
      variables["LD_PRELOAD"] = options.hook.string();
      variables["CHAOS_THROW_PAGE"] = options.page.string();
    }
    children_.push_back(start_program(
        {.command = command(node),
         .variables = variables,
         .output = output_file(node, "out"),
         .error = output_file(node, "err"),
         .network = options.hosts ? options.hosts->network(static_cast<int>(node)) : -1,
         .cores = options.cores}));
    mains_.push_back(children_.back().pid());
  }
  ends_.resize(nodes);
}

fs::path TrainingRun::output_file(std::size_t node, const char* ending) const {
  return fmt::format("{}.{}.{}", options_.output.string(), node, ending);
}

std::vector<std::string> TrainingRun::command(std::size_t node) const {
  std::vector<std::string> words;
  if (!is_forked(options_.transport)) {
    append(words, {(options_.programs / "lockstep").string(), "launch"});
    if (has_nodes(options_.transport)) {
      append(words,
             {"--nproc-per-node", "1", "--nnodes",
              options_.transport == Transport::kElastic ? "1:2" : "2", "--node-rank",
              std::to_string(node), "--rdzv-endpoint", fmt::format("{}:29400", HostPair::kAddress0),
              "--token-file", options_.token_file.string(), "--timeout", "10"});
    } else {
      append(words, {"--nproc-per-node", "2", "--timeout", "10"});
    }
    if (options_.restarts) append(words, {"--max-restarts", std::to_string(kRestarts)});
  }
  append(words,
         {(options_.programs / name_of(options_.program)).string(), "--quiet", "--epochs",
          std::to_string(epochs_of(options_.program)), "--shards", "4", "--save-every", "10",
          "--timeout", std::to_string(kRunTimeout.count()), "--logdir", options_.folder.string()});
  if (options_.program == TrainedProgram::kMnist) append(words, {"--batch-size", "256"});
  if (is_forked(options_.transport)) {
    append(words, {"--workers", "2", "--backend", std::string(name_of(options_.transport))});
    if (options_.restarts) append(words, {"--max-restarts", std::to_string(kRestarts)});
  }
  if (options_.resume) append(words, {"--resume", "last"});
  return words;
}

bool TrainingRun::has_ended() {
  bool ended = true;
  for (std::size_t node = 0; node < children_.size(); ++node) {
    if (!children_[node]) continue;
    if (const auto end = children_[node].try_reap()) {
      ends_[node] = *end;
    } else {
      ended = false;
    }
  }
  return ended;
}

bool TrainingRun::ended_well() const {
  // If one node is enough, the first one has to end well: it has the rendezvous and rank 0.
  if (options_.transport == Transport::kElastic) return ends_[0].ok();
  return all_ended_well();
}

bool TrainingRun::all_ended_well() const {
  return std::ranges::all_of(ends_, &process::ChildEnd::ok);
}

double TrainingRun::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

std::vector<MarkedProcess> TrainingRun::workers() const {
  return candidates(is_forked(options_.transport) ? Victim::kWorker : Victim::kRank);
}

std::vector<MarkedProcess> TrainingRun::candidates(Victim victim) const {
  auto all = processes();
  std::erase_if(all, [&](const MarkedProcess& process) {
    const bool is_main = std::ranges::count(mains_, process.pid) != 0;
    switch (victim) {
      case Victim::kWorker:
        // Without restarts, workers have the name of the program.
        return is_main || !(process.name.starts_with("lockstep-rank-") ||
                            (!options_.restarts && !process.name.starts_with("lockstep-")));
      case Victim::kTemplate:
        return !process.name.starts_with("lockstep-templ");
      case Victim::kRank:
        return is_main || process.rank < 0;
      case Victim::kReaper:
        return process.name != "lockstep-reaper";
      case Victim::kCaller:
      case Victim::kLauncher0:
        return process.pid != mains_[0];
      case Victim::kLauncher1:
        return process.pid != mains_.back();
      default:
        return !is_main;
    }
  });
  return all;
}

std::string TrainingRun::output() const {
  std::string text;
  for (std::size_t node = 0; node < mains_.size(); ++node) {
    for (const char* const ending : {"out", "err"}) {
      const fs::path path = output_file(node, ending);
      text += fmt::format("--- {}\n{}", path.filename().string(), read_file(path));
    }
  }
  return text;
}

std::size_t TrainingRun::error_lines() const {
  std::size_t lines = 0;
  for (std::size_t node = 0; node < mains_.size(); ++node) {
    std::istringstream text(read_file(output_file(node, "err")));
    std::string line;
    while (std::getline(text, line)) {
      if (line.find("waiting") == std::string::npos) ++lines;
    }
  }
  return lines;
}

}  // namespace lockstep::chaos
