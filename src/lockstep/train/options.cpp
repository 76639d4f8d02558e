#include "lockstep/train/options.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/sharding.h"
#include "lockstep/log/loader_name.h"
#include "lockstep/train/train_step.h"

namespace lockstep {
namespace {

void check_loader(const std::string& name, const data::Loader& loader, std::int64_t shards) {
  check_loader_name(name);
  constexpr std::array kPrefixes = {"train", "valid", "test", "infer"};
  const bool known =
      std::ranges::any_of(kPrefixes, [&](const char* prefix) { return name.starts_with(prefix); });
  if (!known) {
    throw ConfigError(
        "loader '{}': expected a name that begins with train, valid, test or infer, "
        "which says what it is used for",
        name);
  }
  if (data::epoch_size(loader, shards).batches > 0) return;
  if (loader.dataset()->size() == 0) throw ConfigError("loader '{}': its dataset is empty", name);
  throw ConfigError(
      "loader '{}': has no batch: its {} samples are fewer than one batch needs ({}), and "
      "drop_last is set",
      name, loader.dataset()->size(), describe(data::batch_split(loader, shards)));
}

}  // namespace

void check_options(const TrainOptions& options) {
  if (options.num_epochs < 1) {
    throw ConfigError("num_epochs: expected 1 or more, got {}", options.num_epochs);
  }
  check_settings({.accumulation_steps = options.accumulation_steps,
                  .clip_grad_norm = options.clip_grad_norm,
                  .clip_grad_value = options.clip_grad_value});
  if (options.valid_metric && !options.valid_loader) {
    throw ConfigError("valid_metric '{}': set valid_loader, too, to say whose metric it is",
                      *options.valid_metric);
  }
  for (const auto& [name, count] :
       {std::pair("workers", options.workers), std::pair("shards", options.shards)}) {
    if (!count) continue;
    if (*count < 1) throw ConfigError("{}: expected 1 or more, got {}", name, *count);
    if (!options.ddp) throw ConfigError("{}: {} makes sense with ddp = true only", name, *count);
  }
  for (const auto& logger : options.loggers) {
    if (logger == nullptr) throw ConfigError("loggers: expected a logger, got a null pointer");
  }
}

void check_loaders(const data::Loaders& loaders, const TrainOptions& options, std::int64_t shards) {
  if (loaders.size() == 0) {
    throw ConfigError(
        "loaders: expected at least a 'train' loader, got none; pass .loaders or "
        "override get_loaders()");
  }
  for (const auto& [name, loader] : loaders) check_loader(name, loader, shards);
  const auto names = loaders.names();
  const bool trains =
      std::ranges::any_of(names, [](const auto& name) { return is_train_loader(name); });
  if (!trains) {
    throw ConfigError("loaders: expected one whose name begins with 'train', got {}",
                      join(names, ", "));
  }
  if (options.valid_loader && !loaders.contains(*options.valid_loader)) {
    throw ConfigError("valid_loader: there is no loader '{}'; {}", *options.valid_loader,
                      suggest(*options.valid_loader, names));
  }
}

std::optional<Better> better_of(std::string_view metric, const std::string& loss_key,
                                const std::vector<CallbackPtr>& callbacks) {
  if (metric == loss_key) return Better::kSmaller;
  for (const auto& callback : callbacks) {
    if (const auto better = callback->better(metric)) return better;
  }
  return std::nullopt;
}

std::optional<std::vector<std::string>> known_metrics(const std::vector<CallbackPtr>& callbacks,
                                                      const std::string& loss_key,
                                                      const std::vector<std::string>& of_runner) {
  std::vector<std::string> names = {"lr", "momentum", "gradient/norm"};
  const auto add_average = [&](const std::string& name) {
    for (const char* const suffix : {"", "/std"}) names.push_back(name + suffix);
  };
  add_average(loss_key);
  for (const auto& name : of_runner) add_average(name);
  for (const auto& callback : callbacks) {
    const auto added = callback->traits().metric_names;
    if (!added) return std::nullopt;
    names.insert(names.end(), added->begin(), added->end());
  }
  return names;
}

}  // namespace lockstep
