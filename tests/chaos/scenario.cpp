#include "tests/chaos/scenario.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::chaos {
namespace {

constexpr unsigned bit(Transport transport) {
  return static_cast<unsigned>(transport);
}
constexpr unsigned bit(Moment moment) {
  return static_cast<unsigned>(moment);
}

constexpr unsigned kForked = bit(Transport::kShm) | bit(Transport::kGloo);
constexpr unsigned kLaunch = bit(Transport::kLaunch);
constexpr unsigned kNodes = bit(Transport::kNodes);
constexpr unsigned kElastic = bit(Transport::kElastic);
constexpr unsigned kLaunched = kLaunch | kNodes | kElastic;
constexpr unsigned kOneHost = kForked | kLaunch;

constexpr unsigned kWhileItTrains = bit(Moment::kTraining) | bit(Moment::kSaving);
constexpr unsigned kAtAnyTime =
    kWhileItTrains | bit(Moment::kStart) | bit(Moment::kRecovery) | bit(Moment::kEnd);
// The run is killed when there is something to damage.
constexpr unsigned kAfterASave = kWhileItTrains | bit(Moment::kEnd);

using enum Victim;
using enum FaultKind;
using enum Promise;

constexpr std::array kRows = {
    FaultRow{kForked, kWorker, kKill, kContinues, kAtAnyTime},
    FaultRow{kForked, kWorker, kSegv, kContinues, kAtAnyTime},
    FaultRow{kForked, kWorker, kStop, kContinues, kAtAnyTime},
    FaultRow{kForked, kWorker, kLongStop, kContinues, kAtAnyTime},
    FaultRow{kForked, kWorker, kShortStop, kUndisturbed, kAtAnyTime},
    FaultRow{kForked, kWorker, kException, kContinues, kWhileItTrains | bit(Moment::kStart)},

    FaultRow{kForked, kTemplate, kKill, kContinues, kAtAnyTime},
    FaultRow{kForked, kTemplate, kSegv, kContinues, kAtAnyTime},
    FaultRow{kForked, kTemplate, kStop, kContinues, kAtAnyTime},
    FaultRow{kForked, kTemplate, kShortStop, kContinues, kAtAnyTime},

    FaultRow{kForked, kCaller, kKill, kEnds, kAtAnyTime},
    FaultRow{kForked, kCaller, kSegv, kEnds, kAtAnyTime},
    // Before there are workers and after them, no process could end a stopped caller, so it is
    // continued then.
    FaultRow{kForked, kCaller, kStop, kEither, kAtAnyTime},
    FaultRow{kForked, kCaller, kLongStop, kEither, kAtAnyTime},
    FaultRow{kForked, kCaller, kShortStop, kUndisturbed, kAtAnyTime},
    FaultRow{kForked, kCaller, kException, kContinues, kWhileItTrains | bit(Moment::kStart)},
    // A signal that comes after the last batch has its usual effect, or none.
    FaultRow{kForked, kCaller, kInterrupt, kEither, kAtAnyTime},
    FaultRow{kForked, kCaller, kTerminate, kEither, kAtAnyTime},
    FaultRow{kForked, kGroup, kInterrupt, kEither, kAtAnyTime},
    FaultRow{kForked, kGroup, kTerminate, kEither, kAtAnyTime},

    FaultRow{kLaunched, kRank, kKill, kContinues, kAtAnyTime},
    FaultRow{kLaunched, kRank, kSegv, kContinues, kAtAnyTime},
    FaultRow{kLaunched, kRank, kStop, kContinues, kAtAnyTime},
    FaultRow{kLaunched, kRank, kLongStop, kContinues, kAtAnyTime},
    FaultRow{kLaunched, kRank, kShortStop, kUndisturbed, kAtAnyTime},
    FaultRow{kLaunched, kRank, kException, kContinues, kWhileItTrains | bit(Moment::kStart)},

    FaultRow{kLaunch, kLauncher, kKill, kEnds, kAtAnyTime},
    FaultRow{kLaunch, kLauncher, kSegv, kEnds, kAtAnyTime},
    // The ranks do not need the launcher while they train. Ctrl-Z and fg are such a stop.
    FaultRow{kLaunch, kLauncher, kLongStop, kUndisturbed, kAtAnyTime},
    FaultRow{kLaunch, kLauncher, kShortStop, kUndisturbed, kAtAnyTime},
    FaultRow{kLaunch, kLauncher, kInterrupt, kEither, kAtAnyTime},
    FaultRow{kLaunch, kLauncher, kTerminate, kEither, kAtAnyTime},
    FaultRow{kLaunch, kReaper, kKill, kUndisturbed, kAtAnyTime},

    // Two nodes, both of which are needed.
    FaultRow{kNodes, kLauncher, kKill, kEnds, kAtAnyTime},
    FaultRow{kNodes, kLauncher, kSegv, kEnds, kAtAnyTime},
    // A launcher that is stopped for long is lost for the other one.
    FaultRow{kNodes, kLauncher, kLongStop, kEither, kAtAnyTime},
    FaultRow{kNodes, kLauncher, kShortStop, kUndisturbed, kAtAnyTime},
    FaultRow{kNodes, kLauncher, kInterrupt, kEither, kAtAnyTime},
    FaultRow{kNodes, kLauncher, kTerminate, kEither, kAtAnyTime},
    FaultRow{kNodes, kLink, kCut, kEither, kAtAnyTime},
    FaultRow{kNodes, kLink, kLongCut, kEither, kAtAnyTime},
    FaultRow{kNodes, kLink, kShortCut, kUndisturbed, kAtAnyTime},

    // Two nodes, of which the first is enough.
    FaultRow{kElastic, kLauncher0, kKill, kEnds, kAtAnyTime},
    FaultRow{kElastic, kLauncher1, kKill, kContinues, kAtAnyTime},
    FaultRow{kElastic, kLauncher1, kSegv, kContinues, kAtAnyTime},
    FaultRow{kElastic, kLauncher, kLongStop, kEither, kAtAnyTime},
    FaultRow{kElastic, kLauncher, kShortStop, kUndisturbed, kAtAnyTime},
    FaultRow{kElastic, kLauncher, kInterrupt, kEither, kAtAnyTime},
    FaultRow{kElastic, kLauncher, kTerminate, kEither, kAtAnyTime},
    FaultRow{kElastic, kLink, kCut, kContinues, kAtAnyTime},
    FaultRow{kElastic, kLink, kLongCut, kContinues, kAtAnyTime},
    FaultRow{kElastic, kLink, kShortCut, kUndisturbed, kAtAnyTime},

    FaultRow{kOneHost, kEveryone, kLasting, kEnds, kWhileItTrains | bit(Moment::kStart)},
    // If nothing more has to be written, a full disk is no fault.
    FaultRow{kOneHost, kDisk, kFullDisk, kEither, kWhileItTrains | bit(Moment::kEnd)},
    FaultRow{kOneHost, kFile, kTornWrite, kEnds, kAfterASave},
    FaultRow{kOneHost, kFile, kFlippedBit, kEnds, kAfterASave},
};

constexpr std::array kPrograms = {TrainedProgram::kMnist, TrainedProgram::kGan};
constexpr std::array kTransports = {Transport::kShm, Transport::kGloo, Transport::kLaunch,
                                    Transport::kNodes, Transport::kElastic};
constexpr std::array kMoments = {Moment::kStart, Moment::kTraining, Moment::kSaving,
                                 Moment::kRecovery, Moment::kEnd};

bool needs_namespaces(const Scenario& scenario) {
  return (bit(scenario.transport) & (kNodes | kElastic)) != 0;
}

bool needs_mounts(const Scenario& scenario) {
  return scenario.fault == FaultKind::kFullDisk;
}

// The parts of a scenario's name, in the order of the kinds: program, transport, and so on.
std::array<std::string, 5> words_of(const Scenario& scenario) {
  return {std::string(name_of(scenario.program)), std::string(name_of(scenario.transport)),
          std::string(name_of(scenario.victim)), std::string(name_of(scenario.fault)),
          std::string(name_of(scenario.moment))};
}

Promise without_restarts(Promise promise) {
  return promise == Promise::kContinues ? Promise::kEither : promise;
}

// Every scenario, whether this machine allows it or not.
std::vector<Scenario> expand(const ScenarioOptions& options) {
  const Transport left_out = options.elastic ? Transport::kNodes : Transport::kElastic;
  std::vector<Scenario> all;
  for (const FaultRow& row : kRows) {
    if (!options.restarts && row.victim == Victim::kTemplate) continue;
    for (const Transport transport : kTransports) {
      if ((row.transports & bit(transport)) == 0 || transport == left_out) continue;
      for (const TrainedProgram program : kPrograms) {
        for (const Moment moment : kMoments) {
          if ((row.moments & bit(moment)) == 0) continue;
          if (!options.restarts && moment == Moment::kRecovery) continue;
          all.push_back(
              {.program = program,
               .transport = transport,
               .victim = row.victim,
               .fault = row.fault,
               .moment = moment,
               .promise = options.restarts ? row.promise : without_restarts(row.promise)});
        }
      }
    }
  }
  return all;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) words.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return words;
}

std::vector<Scenario> filtered(std::vector<Scenario> all, const std::string& only) {
  std::set<std::string> known;
  for (const Scenario& scenario : all) {
    for (const std::string& word : words_of(scenario)) known.insert(word);
  }
  // The wanted words of each kind.
  std::array<std::set<std::string>, 5> wanted;
  for (const std::string& word : split(only)) {
    if (!known.contains(word)) {
      throw ConfigError("--only: there is no '{}': {}", word,
                        suggest(word, std::vector(known.begin(), known.end())));
    }
    for (const Scenario& scenario : all) {
      const auto words = words_of(scenario);
      for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] == word) wanted[i].insert(word);
      }
    }
  }
  std::erase_if(all, [&](const Scenario& scenario) {
    const auto words = words_of(scenario);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (!wanted[i].empty() && !wanted[i].contains(words[i])) return true;
    }
    return false;
  });
  return all;
}

// Chooses one of the values that `part` has, and returns the scenarios with that value.
template <typename Part>
std::vector<Scenario> keep_one_value(std::vector<Scenario> all, const Part& part,
                                     RandomSource& random) {
  std::set<decltype(part(all.front()))> values;
  for (const Scenario& scenario : all) values.insert(part(scenario));
  const auto value = random.pick(std::vector(values.begin(), values.end()));
  std::erase_if(all, [&](const Scenario& scenario) { return part(scenario) != value; });
  return all;
}

bool is_possible(const Scenario& scenario, const ScenarioOptions& options) {
  return (options.namespaces || !needs_namespaces(scenario)) &&
         (options.mounts || !needs_mounts(scenario));
}

}  // namespace

std::string_view name_of(TrainedProgram program) {
  return program == TrainedProgram::kMnist ? "mnist" : "gan";
}

std::string_view name_of(Transport transport) {
  switch (transport) {
    case Transport::kShm:
      return "shm";
    case Transport::kGloo:
      return "gloo";
    case Transport::kLaunch:
      return "launch";
    case Transport::kNodes:
      return "nodes";
    case Transport::kElastic:
      return "elastic";
  }
  return "";
}

std::string_view name_of(Victim victim) {
  switch (victim) {
    case Victim::kWorker:
      return "worker";
    case Victim::kTemplate:
      return "template";
    case Victim::kCaller:
      return "caller";
    case Victim::kRank:
      return "rank";
    case Victim::kLauncher:
      return "launcher";
    case Victim::kLauncher0:
      return "launcher-0";
    case Victim::kLauncher1:
      return "launcher-1";
    case Victim::kReaper:
      return "reaper";
    case Victim::kGroup:
      return "group";
    case Victim::kEveryone:
      return "everyone";
    case Victim::kLink:
      return "link";
    case Victim::kDisk:
      return "disk";
    case Victim::kFile:
      return "file";
  }
  return "";
}

std::string_view name_of(FaultKind fault) {
  switch (fault) {
    case FaultKind::kKill:
      return "kill";
    case FaultKind::kSegv:
      return "segv";
    case FaultKind::kStop:
      return "stop";
    case FaultKind::kShortStop:
      return "short-stop";
    case FaultKind::kLongStop:
      return "long-stop";
    case FaultKind::kException:
      return "exception";
    case FaultKind::kLasting:
      return "lasting-exception";
    case FaultKind::kInterrupt:
      return "sigint";
    case FaultKind::kTerminate:
      return "sigterm";
    case FaultKind::kCut:
      return "cut";
    case FaultKind::kShortCut:
      return "short-cut";
    case FaultKind::kLongCut:
      return "long-cut";
    case FaultKind::kFullDisk:
      return "full";
    case FaultKind::kTornWrite:
      return "torn-write";
    case FaultKind::kFlippedBit:
      return "flipped-bit";
  }
  return "";
}

std::string_view name_of(Moment moment) {
  switch (moment) {
    case Moment::kStart:
      return "start";
    case Moment::kTraining:
      return "training";
    case Moment::kSaving:
      return "saving";
    case Moment::kRecovery:
      return "recovery";
    case Moment::kEnd:
      return "end";
  }
  return "";
}

std::span<const FaultRow> fault_rows() {
  return kRows;
}

std::string Scenario::name() const {
  return fmt::format("{} {} {}", name_of(program), group(), name_of(moment));
}

std::string Scenario::group() const {
  return fmt::format("{} {} {}", name_of(transport), name_of(victim), name_of(fault));
}

std::vector<Scenario> scenarios(const ScenarioOptions& options) {
  auto all = filtered(expand(options), options.only);
  std::erase_if(all, [&](const Scenario& scenario) { return !is_possible(scenario, options); });
  if (all.empty()) {
    throw ConfigError("--only {}: no scenario fits all of these words; --list shows all scenarios",
                      options.only);
  }
  return all;
}

std::size_t count_impossible(const ScenarioOptions& options) {
  return static_cast<std::size_t>(std::ranges::count_if(
      filtered(expand(options), options.only),
      [&](const Scenario& scenario) { return !is_possible(scenario, options); }));
}

Scenario choose(const std::vector<Scenario>& all, std::uint64_t seed, RandomSource& random) {
  const auto transport_of = [](const Scenario& scenario) { return scenario.transport; };
  const auto fault_of = [](const Scenario& scenario) {
    return std::pair(scenario.victim, scenario.fault);
  };
  Scenario chosen =
      random.pick(keep_one_value(keep_one_value(all, transport_of, random), fault_of, random));
  chosen.seed = seed;
  return chosen;
}

}  // namespace lockstep::chaos
