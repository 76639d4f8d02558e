#include "lockstep/process/environment.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/process/pmi.h"

namespace lockstep::process {
namespace {

// The number, if the whole text is a number that is not negative.
std::optional<std::int64_t> parse(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

struct ValueRange {
  int first = 0;
  int last = std::numeric_limits<int>::max();
  std::string reason = {};  // why `last` is the limit, for the message

  std::string describe() const {
    if (last == std::numeric_limits<int>::max()) return fmt::format("{} up", first);
    return fmt::format("{} to {}{}{}", first, last, reason.empty() ? "" : " because ", reason);
  }
};

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  std::optional<std::string> value(const std::string& name) const {
    const auto found = environment_.find(name);
    if (found == environment_.end() || found->second.empty()) return std::nullopt;
    return found->second;
  }

  bool has(const std::string& name) const { return value(name).has_value(); }

  // "RANK=3", for messages.
  std::string show(const std::string& name) const {
    return fmt::format("{}={}", name, value(name).value_or(""));
  }

  std::optional<int> number(const std::string& name, const ValueRange& range) const {
    const std::optional<std::string> text = value(name);
    if (!text) return std::nullopt;
    const std::optional<std::int64_t> number = parse(*text);
    if (!number || *number < range.first || *number > range.last) {
      throw ConfigError("environment variable {}: expected an integer from {}, got '{}'", name,
                        range.describe(), *text);
    }
    return static_cast<int>(*number);
  }

  // Throws unless all are set.
  void require(const std::vector<std::string>& names) const {
    std::vector<std::string> set;
    std::vector<std::string> missing;
    for (const std::string& name : names) {
      if (has(name)) {
        set.push_back(show(name));
      } else {
        missing.push_back(name);
      }
    }
    if (missing.empty()) return;
    throw ConfigError(
        "environment: set: {}; missing: {}: a launcher sets all of them; set them all, or unset "
        "them to start without one",
        join(set, ", "), join(missing, ", "));
  }

 private:
  const Environment& environment_;
};

// The names of one launcher's variables.
struct Names {
  std::string rank;
  std::string size;
  std::string local_rank;
};

struct LocalSize {
  int value = 1;
  std::string source = {};  // "LOCAL_WORLD_SIZE=2", for messages
};

struct NamedPlace {
  Names names;
  LaunchedPlace place;
};

// The variables that must be set. A run of one process needs no local rank: it is 0.
std::vector<std::string> needed(const Variables& variables, const Names& names) {
  std::vector<std::string> result = {names.rank, names.size};
  if (variables.value(names.size) != "1") result.push_back(names.local_rank);
  return result;
}

int read_size(const Variables& variables, const Names& names) {
  return *variables.number(names.size, {.first = 1});
}

std::optional<LocalSize> read_local_size(const Variables& variables, const Names& names,
                                         const std::string& name) {
  const auto value = variables.number(
      name,
      {.first = 1, .last = read_size(variables, names), .reason = variables.show(names.size)});
  if (!value) return std::nullopt;
  return LocalSize{.value = *value, .source = variables.show(name)};
}

LaunchedPlace read_place(const Variables& variables, const Names& names,
                         const std::optional<LocalSize>& local_size) {
  LaunchedPlace place;
  Topology& topology = place.topology;
  topology.world_size = read_size(variables, names);
  const ValueRange below_size{.last = topology.world_size - 1,
                              .reason = variables.show(names.size)};
  topology.rank = *variables.number(names.rank, below_size);
  const ValueRange below_local_size =
      local_size ? ValueRange{.last = local_size->value - 1, .reason = local_size->source}
                 : below_size;
  topology.local_rank = variables.number(names.local_rank, below_local_size).value_or(0);

  place.local_size_known = local_size || topology.world_size == 1;
  topology.local_size = local_size ? local_size->value : topology.local_rank + 1;
  place.master_address = variables.value("MASTER_ADDR");
  place.master_port = variables.number("MASTER_PORT", {.first = 1, .last = 65535});
  return place;
}

const Names& torchrun_names() {
  static const Names names{.rank = "RANK", .size = "WORLD_SIZE", .local_rank = "LOCAL_RANK"};
  return names;
}

void require_torchrun(const Variables& variables) {
  std::vector<std::string> all = needed(variables, torchrun_names());
  all.insert(all.end(), {"MASTER_ADDR", "MASTER_PORT"});
  variables.require(all);
}

NamedPlace find_torchrun(const Variables& variables) {
  const Names& names = torchrun_names();
  require_torchrun(variables);
  LaunchedPlace place =
      read_place(variables, names, read_local_size(variables, names, "LOCAL_WORLD_SIZE"));
  place.launcher = Launcher::kTorchrun;
  place.agent_store = variables.value("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (const auto id = variables.value("TORCHELASTIC_RUN_ID")) {
    // The agent restarts a failed group under the same id and often at the same master address, so
    // the restart count is part of the name.
    place.run_id =
        fmt::format("{}.{}", *id, variables.value("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  }
  return {names, place};
}

std::optional<NamedPlace> find_open_mpi(const Variables& variables) {
  const Names names{.rank = "OMPI_COMM_WORLD_RANK",
                    .size = "OMPI_COMM_WORLD_SIZE",
                    .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK"};
  if (!variables.has(names.rank) && !variables.has(names.size)) return std::nullopt;
  variables.require(needed(variables, names));
  LaunchedPlace place =
      read_place(variables, names, read_local_size(variables, names, "OMPI_COMM_WORLD_LOCAL_SIZE"));
  place.launcher = Launcher::kOpenMpi;
  // Open MPI 5 sets only PMIX_NAMESPACE. In version 4 both variables have the same number.
  const auto job = variables.value("PMIX_NAMESPACE");
  place.run_id = job ? *job : variables.value("OMPI_MCA_ess_base_jobid").value_or("");
  return NamedPlace{names, place};
}

// SLURM_PROCID and SLURM_NTASKS alone do not show that srun started this process. A script of
// sbatch has them, too: 0 and the number of tasks that the job asked for. A program that the script
// starts directly would wait for tasks that are never started. Only srun creates steps. The shell
// of sbatch has no SLURM_STEP_ID or, like the shell of salloc (4294967290), one of the numbers that
// Slurm reserves for steps that srun did not create.
bool is_task_of_srun(const Variables& variables) {
  constexpr std::int64_t kLastStep = 0xfffffff0;
  if (!variables.has("SLURM_PROCID")) return false;
  const auto step = parse(variables.value("SLURM_STEP_ID").value_or(""));
  if (!step || *step > kLastStep) return false;
  // `srun --pty bash` sets SLURM_PTY_PORT. Its only task is a shell, and srun did not launch the
  // programs that are started in that shell. With more than one task the variable shows nothing: an
  // srun that is started in that shell inherits it.
  return !variables.has("SLURM_PTY_PORT") || variables.value("SLURM_STEP_NUM_TASKS") != "1";
}

struct SlurmNode {
  std::int64_t index = 0;  // of this host among the hosts of the step
  std::int64_t total = 0;  // tasks on all hosts, to check that the list belongs to this step
};

// The number of tasks on the node. "2(x3),1" means three nodes with two tasks each, then one node
// with one task. Nothing if the list is malformed or does not belong to the step: it is only a
// hint.
std::optional<int> tasks_on(const SlurmNode& node, std::string_view list) {
  std::optional<int> found;
  std::int64_t nodes = 0;
  std::int64_t total = 0;
  while (!list.empty()) {
    std::string_view group = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), group.size() + 1));
    std::optional<std::int64_t> repeated = 1;
    if (const auto open = group.find("(x"); open != group.npos && group.ends_with(')')) {
      repeated = parse(group.substr(open + 2, group.size() - open - 3));
      group = group.substr(0, open);
    }
    const std::optional<std::int64_t> tasks = parse(group);
    if (!tasks || !repeated || *tasks < 1) return std::nullopt;
    if (*tasks > node.total || *repeated > node.total) return std::nullopt;
    if (node.index >= nodes && node.index < nodes + *repeated) found = static_cast<int>(*tasks);
    nodes += *repeated;
    total += *tasks * *repeated;
  }
  return total == node.total ? found : std::nullopt;
}

// SLURM_NTASKS_PER_NODE is not used: it is the most that the job asked for, not what the step has.
std::optional<LocalSize> find_slurm_local_size(const Variables& variables, const Names& names) {
  const auto index = parse(variables.value("SLURM_NODEID").value_or(""));
  if (!index) return std::nullopt;
  const SlurmNode node{.index = *index, .total = read_size(variables, names)};
  for (const std::string name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const std::optional<int> tasks = tasks_on(node, variables.value(name).value_or(""));
    if (!tasks) continue;
    return LocalSize{
        .value = *tasks,
        .source = fmt::format("{} and {}", variables.show(name), variables.show("SLURM_NODEID"))};
  }
  return std::nullopt;
}

std::optional<NamedPlace> find_slurm(const Variables& variables) {
  if (!is_task_of_srun(variables)) return std::nullopt;
  // With `srun --preserve-env`, SLURM_NTASKS is the number of the job, not of the step.
  const bool has_step_size = variables.has("SLURM_STEP_NUM_TASKS");
  const Names names{.rank = "SLURM_PROCID",
                    .size = has_step_size ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
                    .local_rank = "SLURM_LOCALID"};
  variables.require(needed(variables, names));
  LaunchedPlace place = read_place(variables, names, find_slurm_local_size(variables, names));
  place.launcher = Launcher::kSlurm;
  if (const auto job = variables.value("SLURM_JOB_ID")) {
    place.run_id = fmt::format("{}.{}", *job, *variables.value("SLURM_STEP_ID"));
  }
  return NamedPlace{names, place};
}

const Names& hydra_names() {
  static const Names names{.rank = "PMI_RANK", .size = "PMI_SIZE", .local_rank = "MPI_LOCALRANKID"};
  return names;
}

// Slurm's srun also sets PMI_RANK and PMI_SIZE (--mpi=pmi2), but not MPI_LOCALRANKID. In a Slurm
// job the ranks of hydra also have srun's variables: hydra's daemons are the tasks of a step, and
// the ranks inherit their variables.
bool is_rank_of_hydra(const Variables& variables) {
  const Names& names = hydra_names();
  if (!variables.has(names.rank) && !variables.has(names.size)) return false;
  return variables.has(names.local_rank) || !is_task_of_srun(variables);
}

std::optional<NamedPlace> find_hydra(const Variables& variables) {
  if (!is_rank_of_hydra(variables)) return std::nullopt;
  const Names& names = hydra_names();
  variables.require(needed(variables, names));
  LaunchedPlace place =
      read_place(variables, names, read_local_size(variables, names, "MPI_LOCALNRANKS"));
  place.launcher = Launcher::kHydra;
  // Each host has its own daemon, so the daemon identifies a run only if the run has one host.
  const auto daemon = variables.number("PMI_FD", {});
  if (daemon && place.local_size_known && place.topology.local_size == place.topology.world_size) {
    place.run_id = pmi_run_id(*daemon);
  }
  return NamedPlace{names, place};
}

// Throws if the two variables, which are both set, have different values.
void require_same(const Variables& variables, const std::array<std::string, 2>& names) {
  if (parse(*variables.value(names[0])) == parse(*variables.value(names[1]))) return;
  throw ConfigError("environment: {} contradicts {}: unset what does not belong to this run",
                    variables.show(names[0]), variables.show(names[1]));
}

}  // namespace

std::optional<int> positive_variable(const Environment& environment, const std::string& name) {
  return Variables(environment).number(name, {.first = 1});
}

Environment current_environment() {
  Environment result;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == text.npos) continue;
    result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

std::optional<LaunchedPlace> find_place(const Environment& environment) {
  const Variables variables(environment);
  std::optional<NamedPlace> found = find_open_mpi(variables);
  if (!found) found = find_hydra(variables);
  if (variables.has("RANK") || variables.has("LOCAL_RANK")) {
    const NamedPlace torchrun = find_torchrun(variables);
    // Slurm's variables are not compared: srun may start one torchrun per node, and torchrun starts
    // the workers.
    if (found) {
      require_same(variables, {torchrun.names.rank, found->names.rank});
      require_same(variables, {torchrun.names.size, found->names.size});
    }
    return torchrun.place;
  }

  // Slurm comes last: in a Slurm job mpirun's daemons are the tasks of a step, and the ranks
  // inherit the variables of these tasks.
  if (!found) {
    found = find_slurm(variables);
    if (found && variables.has(hydra_names().rank)) {
      require_same(variables, {hydra_names().rank, found->names.rank});
    }
  }
  if (found) {
    if (variables.has("WORLD_SIZE")) require_same(variables, {"WORLD_SIZE", found->names.size});
    return found->place;
  }
  for (const char* left_over : {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    if (variables.has(left_over)) require_torchrun(variables);
  }
  return std::nullopt;
}

bool is_primary_process() {
  const auto place = find_place(current_environment());
  return !place || place->topology.is_primary();
}

}  // namespace lockstep::process
