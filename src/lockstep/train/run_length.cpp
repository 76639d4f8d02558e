#include "lockstep/train/run_length.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/sharding.h"
#include "lockstep/train/train_step.h"

namespace lockstep {
namespace {

std::int64_t divided_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::string count(std::int64_t number, const char* what) {
  return fmt::format("{} {}{}", with_thousands(number), what, number == 1 ? "" : "s");
}

void check_limit(const std::string& prefix, const std::variant<std::int64_t, double>& limit) {
  if (const auto* batches = std::get_if<std::int64_t>(&limit); batches && *batches < 1) {
    throw ConfigError("limit_batches: {}: expected 1 or more batches, got {}", prefix, *batches);
  }
  if (const auto* share = std::get_if<double>(&limit); share && !(*share > 0 && *share <= 1)) {
    throw ConfigError(
        "limit_batches: {}: expected a number of batches, or a share above 0 and up to 1.0, got {}",
        prefix, *share);
  }
}

// The limit with the longest name that the loader's name begins with.
const std::variant<std::int64_t, double>* limit_of(const std::string& loader,
                                                   const TrainOptions& options) {
  const std::variant<std::int64_t, double>* found = nullptr;
  std::size_t longest = 0;
  for (const auto& [prefix, limit] : options.limit_batches) {
    if (!loader.starts_with(prefix) || (found != nullptr && prefix.size() < longest)) continue;
    found = &limit;
    longest = prefix.size();
  }
  return found;
}

data::Loader limited(const data::Loader& loader, const std::variant<std::int64_t, double>& limit,
                     std::int64_t shards) {
  data::LoaderOptions options = loader.options();
  if (const auto* batches = std::get_if<std::int64_t>(&limit)) {
    options.max_batches = std::min(*batches, options.max_batches.value_or(*batches));
  } else {
    const std::int64_t all = data::epoch_size(loader, shards).batches;
    const double share = std::get<double>(limit) * static_cast<double>(all);
    options.max_batches = std::max<std::int64_t>(1, std::llround(share));
  }
  return data::Loader(loader.dataset(), options);
}

// A train loader whose stream has no known end has the batches of an epoch's steps.
data::Loader with_length(const std::string& name, const data::Loader& loader,
                         const TrainOptions& options) {
  if (loader.has_length()) return loader;
  const auto steps = options.steps_per_epoch ? options.steps_per_epoch : options.num_steps;
  if (!is_train_loader(name) || !steps) {
    throw ConfigError(
        "loader '{}': max_batches: expected the number of batches of an epoch, because the stream "
        "does not tell its number of samples, got none; set it, or override samples() of the "
        "stream{}",
        name, is_train_loader(name) ? ", or train with steps_per_epoch or num_steps" : "");
  }
  data::LoaderOptions limited = loader.options();
  limited.max_batches = *steps * options.accumulation_steps;
  return data::Loader(loader.dataset(), limited);
}

// Whose batches are steps must be clear.
void check_train_loaders(const TrainOptions& options, const data::Loaders& loaders) {
  if (!options.num_steps && !options.steps_per_epoch) return;
  std::vector<std::string> names;
  for (const auto& [name, loader] : loaders) {
    if (is_train_loader(name)) names.push_back(name);
  }
  if (names.size() == 1) return;
  throw ConfigError("{}: expected one train loader, got {}: {}",
                    options.num_steps ? "num_steps" : "steps_per_epoch", names.size(),
                    join(names, ", "));
}

}  // namespace

optim::ScheduleContext RunLength::schedule() const {
  return {.num_epochs = num_epochs, .steps_per_epoch = steps_per_epoch, .num_steps = num_steps};
}

std::int64_t RunLength::last_epoch(const ProgressState& state) const {
  if (!num_steps) return num_epochs;
  const std::int64_t before =
      state.inside_epoch ? state.steps_before_epoch : state.progress.update_step;
  return state.progress.epoch +
         divided_up(std::max<std::int64_t>(*num_steps - before, 0), steps_per_epoch);
}

bool RunLength::has_pass(const std::string& loader, const Progress& progress) const {
  return is_train_loader(loader) || progress.epoch % valid_every == 0 ||
         progress.epoch == progress.num_epochs;
}

data::WindowOptions RunLength::window(const std::string& loader, const ProgressState& state,
                                      std::int64_t first_batch) const {
  data::WindowOptions window{.key = {.epoch = state.progress.epoch}, .first_batch = first_batch};
  if (!is_train_loader(loader)) return window;
  if (goes_on) {
    window.begin = state.progress.batch_step - first_batch;
    window.batches = steps_per_epoch * accumulation_steps;
  }
  if (num_steps) {
    const std::int64_t left = (*num_steps - state.steps_before_epoch) * accumulation_steps;
    window.batches = std::min(window.batches.value_or(left), left);
  }
  return window;
}

void check_length(const TrainOptions& options) {
  for (const auto& [name, steps] : {std::pair("num_steps", options.num_steps),
                                    std::pair("steps_per_epoch", options.steps_per_epoch)}) {
    if (steps && *steps < 1) throw ConfigError("{}: expected 1 or more, got {}", name, *steps);
  }
  if (options.num_steps && options.num_epochs != TrainOptions().num_epochs) {
    throw ConfigError(
        "num_steps: expected num_steps or num_epochs, got both: {} and {}; leave one out",
        *options.num_steps, options.num_epochs);
  }
  if (options.valid_every < 1) {
    throw ConfigError("valid_every: expected 1 or more epochs, got {}", options.valid_every);
  }
  for (const auto& [prefix, limit] : options.limit_batches) check_limit(prefix, limit);
}

data::Loaders limited_loaders(const TrainOptions& options, std::int64_t shards) {
  const std::vector<std::string> names = options.loaders.names();
  for (const auto& [prefix, limit] : options.limit_batches) {
    const auto begins = [&, &start = prefix](const auto& name) { return name.starts_with(start); };
    if (std::ranges::any_of(names, begins)) continue;
    throw ConfigError("limit_batches: there is no loader whose name begins with '{}'; {}", prefix,
                      suggest(prefix, names));
  }
  data::Loaders loaders;
  for (const auto& [name, loader] : options.loaders) {
    const auto* const limit = limit_of(name, options);
    const bool has_count = limit != nullptr && std::holds_alternative<std::int64_t>(*limit);
    const data::Loader whole = has_count ? loader : with_length(name, loader, options);
    loaders.set(name, limit == nullptr ? whole : limited(whole, *limit, shards));
  }
  return loaders;
}

RunLength length_of(const TrainOptions& options, const data::Loaders& loaders,
                    std::int64_t shards) {
  check_train_loaders(options, loaders);
  RunLength length{.num_epochs = options.num_epochs,
                   .steps_per_epoch = options.steps_per_epoch.value_or(
                       steps_per_epoch(loaders, options.accumulation_steps, shards)),
                   .num_steps = options.num_steps,
                   .goes_on = options.steps_per_epoch.has_value(),
                   .accumulation_steps = options.accumulation_steps,
                   .valid_every = options.valid_every};
  if (length.num_steps) length.num_epochs = divided_up(*length.num_steps, length.steps_per_epoch);
  return length;
}

std::string describe(const RunLength& length) {
  const std::string whole =
      length.num_steps ? count(*length.num_steps, "step") : count(length.num_epochs, "epoch");
  if (!length.goes_on) return whole;
  return fmt::format("{}{} of {}", whole, length.num_steps ? " in epochs" : "",
                     count(length.steps_per_epoch, "step"));
}

}  // namespace lockstep
