#include "lockstep/recipe/fit.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>
#include <utility>

#include <torch/utils.h>

#include "lockstep/base/text.h"
#include "lockstep/callback/classification.h"
#include "lockstep/callback/confusion_matrix.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/config/registry.h"
#include "lockstep/data/describe.h"
#include "lockstep/optim/flat_parameters.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/train/plan.h"
#include "lockstep/train/train_step.h"

namespace lockstep::recipe {
namespace {

namespace fs = std::filesystem;
using config::Node;

// Calls `work`. An exception becomes an error at `place`.
template <typename F>
void located(const Node& place, const F& work) {
  try {
    work();
  } catch (const config::LocatedError&) {
    throw;
  } catch (const std::exception& error) {
    config::fail_making(place, place, error.what());
  }
}

// The node of a key; if there is none, the node that it would be in.
const Node& place_in(const Node& node, std::string_view key) {
  const Node* const found = node.find(key);
  return found == nullptr ? node : *found;
}

std::string criterion_name(const Node& node) {
  return config::target_of(node, "criterion", targets().criterions.names()).name;
}

// LibTorch broadcasts shapes that differ, and reports integer targets only in the first backward
// pass. So both are checked here.
void require_alike(const std::string& criterion, const torch::Tensor& output,
                   const torch::Tensor& target) {
  static const std::set<std::string> alike = {"MSELoss",   "L1Loss",  "SmoothL1Loss",
                                              "HuberLoss", "BCELoss", "BCEWithLogitsLoss"};
  if (!alike.contains(criterion)) return;
  if (output.sizes() != target.sizes() || !target.is_floating_point()) {
    throw ConfigError("{} expects floating-point targets of the output's shape", criterion);
  }
}

// The criterion's ignore_index: targets with this value do not count.
std::int64_t ignored_class(const Node& criterion) {
  constexpr std::int64_t kTorchsDefault = -100;
  const Node options =
      config::target_of(criterion, "criterion", targets().criterions.names()).options;
  const Node* const given = options.find("ignore_index");
  return given == nullptr ? kTorchsDefault : config::Value<std::int64_t>::read(*given);
}

// A class that the model has no output for would only fail in the first batch that has it, maybe
// hours later.
void require_classes(const std::string& criterion, const torch::Tensor& output,
                     const torch::Tensor& classes, std::int64_t ignored) {
  const bool by_class = criterion == "CrossEntropyLoss" || criterion == "NLLLoss";
  if (!by_class || classes.scalar_type() != torch::kInt64 || output.dim() < 2) return;
  const auto counted = classes.masked_select(classes != ignored);
  if (counted.numel() == 0) return;
  const auto smallest = counted.min().item<std::int64_t>();
  const auto largest = counted.max().item<std::int64_t>();
  if (smallest < 0 || largest >= output.size(1)) {
    throw ConfigError(
        "class {} is among the targets, but there are outputs for classes 0 to {}{}",
        smallest < 0 ? smallest : largest, output.size(1) - 1,
        smallest < 0 ? "; mark targets that do not count with the criterion's ignore_index" : "");
  }
}

class Fit {
 public:
  explicit Fit(const StageToCheck& stage)
      : node_(stage.node), options_(stage.options), runner_(stage.runner), keys_(stage.keys) {}

  void check() {
    resolve_options();
    if (keys_) {
      for (const auto& [name, loader] : options_.loaders) check_loader(name, loader);
    }
    check_run();
    check_resume();
    check_weights();
  }

 private:
  void resolve_options() {
    try {
      plan_ = runner_.plan(options_);
    } catch (const PlanError& error) {
      const Node& place = place_of_part(error.part());
      config::fail_making(place, place, error.reason());
    } catch (const std::exception& error) {
      config::fail_making(node_, node_, error.what());
    }
  }

  // The place of a part of the plan: "loaders/valid".
  const Node& place_of_part(const std::string& path) const {
    const std::size_t slash = path.find('/');
    const Node& section = place_in(node_, path.substr(0, slash));
    return slash == std::string::npos ? section : place_in(section, path.substr(slash + 1));
  }

  // The place of a loader in the config.
  const Node& place_of(const std::string& loader) const {
    return place_in(place_in(node_, "loaders"), loader);
  }

  void check_loader(const std::string& name, const data::Loader& loader) {
    const Node& place = place_of(name);
    Batch batch = some_samples(loader, 2, place);
    const torch::Tensor input = tensor_of(batch, keys_->input_key, place);
    const torch::NoGradGuard no_grad;
    torch::Tensor output;
    options_.model.train(false);
    located(place, [&] {
      try {
        output = options_.model(input);
      } catch (const std::exception& error) {
        throw ConfigError("the model does not fit its samples, {}: {}", data::describe(input),
                          error.what());
      }
    });
    options_.model.train(true);
    batch.set(keys_->output_key, output);
    if (options_.criterion) check_criterion(name, loader, batch);
    check_metrics(batch);
  }

  void check_criterion(const std::string& name, const data::Loader& loader, const Batch& batch) {
    const torch::Tensor& output = batch[keys_->output_key];
    const torch::Tensor& target = tensor_of(batch, keys_->target_key, place_of(name));
    const Node& place = place_in(node_, "criterion");
    const std::string criterion = criterion_name(place);
    constexpr std::int64_t kSome = 1000;
    located(place_of(name), [&] {
      require_classes(criterion, output,
                      some_samples(loader, kSome, place_of(name))[keys_->target_key],
                      ignored_class(place));
    });
    located(place, [&] {
      try {
        require_alike(criterion, output, target);
        options_.criterion(output, target);
      } catch (const std::exception& error) {
        throw ConfigError("does not fit the model's output {} and the targets {} of {}: {}",
                          data::describe(output), data::describe(target), name, error.what());
      }
    });
  }

  // Passes the batch to the callbacks that compute metrics.
  void check_metrics(const Batch& batch) {
    State state;
    state.batch = batch;
    for (const auto& callback : options_.callbacks) {
      const bool is_metric = dynamic_cast<MetricCallback*>(callback.get()) != nullptr ||
                             dynamic_cast<ConfusionMatrixCallback*>(callback.get()) != nullptr;
      if (!is_metric) continue;
      located(place_of_callback(callback), [&] {
        callback->on_loader_start(state);
        callback->on_batch_end(state);
      });
      callback->on_loader_start(state);  // clears what the batch added
    }
  }

  const Node& place_of_callback(const CallbackPtr& callback) const {
    const Node& section = place_in(node_, "callbacks");
    std::vector<const Node*> places;
    for (const Node& item : section.items()) places.push_back(&item);
    for (const auto& [name, item] : section.entries()) {
      if (!item.is_null()) places.push_back(&item);
    }
    std::size_t index = 0;
    for (const auto& given : options_.callbacks) {
      if (given == callback && index < places.size()) return *places[index];
      ++index;
    }
    return node_;
  }

  // Checks that optimizer, scheduler, metrics and callbacks fit together, as the loop would.
  void check_run() {
    // The optimizer is made of copies. It would move the parameters themselves, which must not
    // happen before the workers are started.
    NamedTensors copies;
    for (const auto& [name, parameter] : options_.model.parameters()) {
      copies.push_back(
          {name, parameter.detach().clone().set_requires_grad(parameter.requires_grad())});
    }
    optim::FlatParameters parameters(copies);
    std::unique_ptr<optim::Optimizer> optimizer;
    std::unique_ptr<optim::Scheduler> scheduler;
    located(place_in(node_, "optimizer"), [&] { optimizer = options_.optimizer.make(parameters); });
    if (options_.scheduler) {
      located(place_in(node_, "scheduler"), [&] { scheduler = make_scheduler(*optimizer); });
    }

    State state = state_of(plan_);
    state.optimizer = optimizer.get();
    state.scheduler = scheduler.get();
    for (const auto& callback : plan_.callbacks) {
      located(place_of_callback(callback), [&] { callback->check(state); });
    }
  }

  // Also steps through the whole run, to check that the scheduler has enough steps for it.
  std::unique_ptr<optim::Scheduler> make_scheduler(optim::Optimizer& optimizer) const {
    const std::int64_t steps =
        steps_per_epoch(plan_.loaders, plan_.step.accumulation_steps, plan_.step.shards);
    auto scheduler = options_.scheduler.make(
        optimizer, {.num_epochs = options_.num_epochs, .steps_per_epoch = steps});
    const std::int64_t all =
        options_.num_epochs * (scheduler->per() == optim::Per::kBatch ? steps : 1);
    constexpr std::int64_t kMost = 1'000'000;  // more steps would take too long
    if (!scheduler->needs_metric() && all <= kMost) {
      const double lr = optimizer.lr();
      for (std::int64_t i = 1; i < all; ++i) scheduler->step();
      optimizer.set_lr(lr);
    }
    return scheduler;
  }

  void check_weights() const {
    if (!options_.weights) return;
    try {
      options_.model.check_state(checkpoint::load_weights(*options_.weights));
    } catch (const CheckpointError& error) {
      place_in(node_, "weights").fail("{}", error.what());
    }
  }

  void check_resume() const {
    if (!options_.resume || fs::exists(*options_.resume)) return;
    const bool in_logdir = options_.logdir && fs::exists(checkpoint::folder_in(*options_.logdir) /
                                                         (*options_.resume + ".pth"));
    if (!in_logdir) {
      place_in(node_, "resume").fail("there is no such checkpoint: '{}'", *options_.resume);
    }
  }

  const Node& node_;
  const TrainOptions& options_;
  Runner& runner_;
  std::optional<SupervisedKeys> keys_;
  Plan plan_;
};

}  // namespace

Batch some_samples(const data::Loader& loader, std::int64_t count, const Node& place) {
  const std::int64_t size = loader.dataset()->size();
  if (size == 0) place.fail("the data set is empty");
  std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(count, size)));
  std::iota(indices.begin(), indices.end(), 0);
  Batch batch;
  located(place, [&] { batch = loader.dataset()->gather(indices, {}); });
  return batch;
}

const torch::Tensor& tensor_of(const Batch& batch, const std::string& key, const Node& place) {
  if (!batch.contains(key)) {
    place.fail("its batches have no '{}', which the run needs; {}", key,
               suggest(key, batch.keys()));
  }
  return batch[key];
}

void check_stage(const StageToCheck& stage) {
  Fit(stage).check();
}

}  // namespace lockstep::recipe
