#include "lockstep/train/agreement.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <typeinfo>

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/Type.h>
#include <fmt/ranges.h>
#include <torch/utils.h>
#include <torch/version.h>

#include "lockstep/base/error.h"
#include "lockstep/base/version.h"
#include "lockstep/compute/cpu_instructions.h"
#include "lockstep/compute/switches.h"
#include "lockstep/data/draw_indices.h"
#include "lockstep/optim/describe.h"
#include "lockstep/train/plan.h"

namespace lockstep {
namespace {

template <typename T>
std::string text_of(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "none";
}

// The sampler's type, size and settings. If it does not tell its settings, a hash of its first
// order, because nothing else identifies the order. Orders that are too long for a hash are
// compared only by their size.
std::string describe(const data::Sampler& sampler) {
  constexpr std::int64_t kMost = 1'000'000;
  std::string text = fmt::format("{} of {}", c10::demangle(typeid(sampler).name()), sampler.size());
  if (const std::string settings = sampler.settings(); !settings.empty()) {
    return text + " of " + settings;
  }
  if (sampler.size() > kMost) return text;
  return text + fmt::format(" (order {})", data::fingerprint(sampler.indices(1)));
}

std::string samples_of(const data::Loader& loader) {
  if (loader.iterable() && !loader.iterable()->samples()) return "a stream of";
  return fmt::format("{}", loader.dataset()->size());
}

std::string describe(const data::Loader& loader) {
  const data::LoaderOptions& options = loader.options();
  std::string order = options.shuffle ? "shuffled" : "in order";
  if (options.sampler) order = "by " + describe(*options.sampler);
  const data::BatchTransform& transform = loader.collate().after();
  return fmt::format("{} samples, {} {}{}{}, {}{}{}", samples_of(loader),
                     options.global_batch_size ? "global batch size" : "batch size",
                     options.global_batch_size.value_or(options.batch_size),
                     options.drop_last ? " (drop_last)" : "",
                     options.max_batches ? fmt::format(", at most {}", *options.max_batches) : "",
                     options.seed ? fmt::format("{} with seed {}", order, *options.seed) : order,
                     options.collate ? ", collate " + options.collate.name() : "",
                     transform ? ", batch_transform " + transform.name() : "");
}

// The instruction set for which LibTorch's kernels were chosen, for example "AVX2".
std::string cpu_capability() {
  const std::string config = at::show_config();
  const std::string key = "CPU capability usage: ";
  const auto at = config.find(key);
  if (at == std::string::npos) return "unknown";
  return config.substr(at + key.size(), config.find('\n', at) - at - key.size());
}

std::string enabled_speedups() {
  using compute::Speedup;
  std::vector<std::string> names;
  for (const auto& [speedup, name] :
       {std::pair(Speedup::kPlan, "plan"), std::pair(Speedup::kPatches, "patches"),
        std::pair(Speedup::kPool, "pool"), std::pair(Speedup::kDenormals, "denormals")}) {
    if (compute::is_enabled(speedup)) names.emplace_back(name);
  }
  return fmt::format("{}", fmt::join(names, ","));
}

std::string seed_of(const TrainOptions& options) {
  if (options.seed) return fmt::format("{}", *options.seed);
  return options.resume ? "the checkpoint's" : "42";
}

std::string describe(const Named<Weights>& files) {
  std::vector<std::string> texts;
  for (const auto& [name, weights] : files) {
    texts.push_back(fmt::format("{}: {}", name, weights.describe()));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

void add_options(Agreement& agreement, const TrainOptions& options) {
  agreement.insert(agreement.end(),
                   {{"seed", seed_of(options)},
                    {"num_epochs", fmt::format("{}", options.num_epochs)},
                    {"num_steps", text_of(options.num_steps)},
                    {"steps_per_epoch", text_of(options.steps_per_epoch)},
                    {"valid_every", fmt::format("{}", options.valid_every)},
                    // Rank 0 reads the files for all ranks. The other ranks may have another path
                    // to the same file.
                    {"resume", options.resume ? "a checkpoint" : "none"},
                    {"weights", options.weights.describe()},
                    {"weights_skip", fmt::format("{}", fmt::join(options.weights_skip, ", "))},
                    {"network_weights", describe(options.network_weights)},
                    {"restore", options.restore.describe()},
                    {"valid_loader", text_of(options.valid_loader)},
                    {"valid_metric", text_of(options.valid_metric)},
                    {"minimize_valid_metric", text_of(options.minimize_valid_metric)},
                    {"load_best_on_end", fmt::format("{}", options.load_best_on_end)},
                    {"keep_run", fmt::format("{}", options.keep_run)},
                    {"profile", fmt::format("{}", options.profile)},
                    {"accumulation_steps", fmt::format("{}", options.accumulation_steps)},
                    {"lr_base_batch_size", text_of(options.lr_base_batch_size)},
                    {"clip_grad_norm", text_of(options.clip_grad_norm)},
                    {"clip_grad_value", text_of(options.clip_grad_value)},
                    {"clip_grad", options.clip_grad ? "a function" : "none"},
                    {"wire", options.wire.name()},
                    {"log_gradient_norm", fmt::format("{}", options.log_gradient_norm)},
                    {"terminate_on_nan", fmt::format("{}", options.terminate_on_nan)}});
}

// Names and values, one per line; line breaks in a value are replaced.
std::string packed(const Agreement& agreement) {
  std::string text;
  for (const auto& [name, value] : agreement) {
    std::string line = fmt::format("{}\t{}", name, value);
    std::ranges::replace(line, '\n', ' ');
    text += line + '\n';
  }
  return text;
}

Agreement unpacked(const std::string& text) {
  Agreement agreement;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = text.find('\n', at);
    const std::size_t tab = text.find('\t', at);
    agreement.emplace_back(text.substr(at, tab - at), text.substr(tab + 1, end - tab - 1));
    at = end + 1;
  }
  return agreement;
}

// "rank 0 has 42, ranks 1 and 2 have 43"
std::string values_by_rank(const std::vector<std::string>& values) {
  std::vector<std::pair<std::string, std::vector<int>>> ranks_of;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    const auto same = [&](const auto& known) { return known.first == values[rank]; };
    auto found = std::ranges::find_if(ranks_of, same);
    if (found == ranks_of.end()) {
      ranks_of.emplace_back(values[rank], std::vector<int>());
      found = std::prev(ranks_of.end());
    }
    found->second.push_back(static_cast<int>(rank));
  }
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : ranks_of) {
    // The names of a thousand ranks would hide the rest of the message.
    constexpr std::size_t kMostNamed = 8;
    std::vector<int> named(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(
                                                              std::min(kMostNamed, ranks.size())));
    const std::size_t others = ranks.size() - named.size();
    parts.push_back(fmt::format("rank{} {}{} {} {}", ranks.size() == 1 ? "" : "s",
                                fmt::join(named, ", "),
                                others > 0 ? fmt::format(" and {} more", others) : "",
                                ranks.size() == 1 ? "has" : "have", value));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// What the user can do about a difference, other than to start all ranks with the same options.
std::string remedy(const std::string& name) {
  if (name == "CPU capability") {
    return "; set ATEN_CPU_CAPABILITY to what all machines have (default, avx2 or avx512)";
  }
  if (name.ends_with("(FittedDataCallback)")) {
    return "; each host has measured its own data: measure them once, and give every host the same "
           "schema (of a table, written by save_schema), scaling or train_classes in the config";
  }
  if (name == "threads of a worker") return "; set the engine's threads";
  if (name == "callbacks") {
    return "; a callback that only rank 0 has must set .ranks = Ranks::kPrimary in its traits(), "
           "and "
           "one that only the other ranks have Ranks::kOthers";
  }
  return "";
}

void add_loaders(Agreement& agreement, const data::Loaders& loaders) {
  agreement.emplace_back("loaders", fmt::format("{}", fmt::join(loaders.names(), ", ")));
  for (const auto& [name, loader] : loaders) {
    agreement.emplace_back(fmt::format("loader '{}'", name), describe(loader));
  }
}

// Parts that were given by name have it in their titles.
void add_parts(Agreement& agreement, const Plan& plan) {
  agreement.emplace_back("models", fmt::format("{}", fmt::join(plan.models.names(), ", ")));
  for (const auto& [name, criterion] : plan.criterions) {
    const bool is_single = plan.options.criterions.empty();
    agreement.emplace_back(is_single ? name : fmt::format("criterion '{}'", name),
                           criterion.describe());
  }
  for (const auto& optimizer : plan.optimizers) {
    const bool is_single = plan.options.optimizers.empty();
    const std::string of = is_single ? "" : fmt::format(" of '{}'", optimizer.name);
    agreement.emplace_back("optimizer" + of, optim::describe(optimizer.spec));
    agreement.emplace_back("scheduler" + of, optim::describe(optimizer.scheduler));
  }
  agreement.emplace_back("phases", describe(plan.phases));
}

// Callbacks that run only on rank 0, or only on the other ranks, are not compared.
void add_callbacks(Agreement& agreement, const std::vector<CallbackPtr>& callbacks) {
  std::vector<std::string> names;
  Agreement options;
  for (const auto& callback : callbacks) {
    if (callback->traits().ranks != Ranks::kAll) continue;
    names.push_back(callback->name());
    const std::string text = callback->agreed_options();
    // The number tells callbacks of one name apart.
    options.emplace_back(fmt::format("callback {} ({})", names.size(), names.back()),
                         text.empty() ? "no options" : text);
  }
  agreement.emplace_back("callbacks",
                         names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
  agreement.insert(agreement.end(), options.begin(), options.end());
}

void add_engine(Agreement& agreement, const Engine& engine) {
  agreement.insert(agreement.end(),
                   {{"shards", fmt::format("{}", engine.shards())},
                    {"workers", fmt::format("{}", engine.workers())},
                    {"device", c10::DeviceTypeName(engine.device().type(), true)},
                    {"sync_bn", fmt::format("{}", engine.synchronizes_batch_norm())},
                    {"share_updates", fmt::format("{}", engine.shares_updates())}});
}

// Another CPU may compute other bits in 16 bits.
void add_precision(Agreement& agreement, const Plan& plan) {
  agreement.emplace_back("precision", plan.precision.name());
  const bool on_cpu = plan.engine->device().is_cpu();
  if (plan.precision.is_mixed() && on_cpu) {
    agreement.emplace_back("CPU's instructions for 16 bits",
                           compute::half_instructions(compute::read_cpuinfo()));
  }
  if (!plan.scaler) return;
  agreement.emplace_back("grad_scaler",
                         fmt::format("init_scale={}, growth_factor={}, backoff_factor={}, "
                                     "growth_interval={}",
                                     plan.scaler->init_scale, plan.scaler->growth_factor,
                                     plan.scaler->backoff_factor, plan.scaler->growth_interval));
}

void add_machine(Agreement& agreement) {
  const at::Context& context = at::globalContext();
  agreement.insert(
      agreement.end(),
      {{"library version", fmt::format("{} with LibTorch {}", LOCKSTEP_VERSION, TORCH_VERSION)},
       {"default type",
        fmt::format("{}, matrix products {}", c10::toString(c10::get_default_dtype_as_scalartype()),
                    static_cast<int>(context.float32MatmulPrecision()))},
       {"deterministic algorithms", fmt::format("{}", context.deterministicAlgorithms())},
       {"CPU capability", cpu_capability()},
       {"threads of a worker", fmt::format("{}", torch::get_num_threads())},
       {"LOCKSTEP_DISABLE leaves", enabled_speedups()}});
}

}  // namespace

Agreement agreement_of(const Plan& plan) {
  Agreement agreement;
  add_options(agreement, plan.options);
  agreement.emplace_back("run that goes on", plan.goes_on_from ? "the last one" : "none");
  add_engine(agreement, *plan.engine);
  add_precision(agreement, plan);
  agreement.emplace_back("runner", plan.runner_type);
  agreement.emplace_back("options of the runner",
                         plan.runner_options.empty() ? "none" : plan.runner_options);
  add_loaders(agreement, plan.loaders);
  add_parts(agreement, plan);
  add_callbacks(agreement, plan.callbacks);
  add_machine(agreement);
  return agreement;
}

void check_agreement(const Agreement& mine, comm::Communicator& communicator) {
  if (communicator.size() == 1) return;
  const std::string text = packed(mine);
  const auto hashes = communicator.vote(std::hash<std::string>{}(text));
  const bool alike = std::ranges::all_of(hashes, [&](auto hash) { return hash == hashes.front(); });
  if (alike) return;
  std::vector<std::map<std::string, std::string>> of_rank;
  std::vector<std::string> names;  // in the order of the first rank that has them
  for (const std::string& theirs : communicator.all_gather_bytes(text)) {
    of_rank.emplace_back();
    for (auto& [name, value] : unpacked(theirs)) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
      of_rank.back()[name] = std::move(value);
    }
  }
  std::vector<std::string> differences;
  for (const std::string& name : names) {
    std::vector<std::string> values;
    for (const auto& theirs : of_rank) {
      const auto found = theirs.find(name);
      values.push_back(found == theirs.end() ? "nothing" : found->second);
    }
    if (std::set<std::string>(values.begin(), values.end()).size() == 1) continue;
    differences.push_back(fmt::format("the {}: {}{}", name, values_by_rank(values), remedy(name)));
  }
  if (differences.empty()) return;
  throw ConfigError("ranks disagree about {}; start every rank with the same options",
                    fmt::join(differences, "; and about "));
}

}  // namespace lockstep
