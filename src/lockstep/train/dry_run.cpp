#include "lockstep/train/dry_run.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/compute/autocast.h"
#include "lockstep/data/describe.h"
#include "lockstep/optim/flat_parameters.h"
#include "lockstep/process/failure.h"
#include "lockstep/train/first_weights.h"
#include "lockstep/train/mixed_precision.h"
#include "lockstep/train/random.h"
#include "lockstep/train/restore.h"
#include "lockstep/train/train_step.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A lack of memory is no error in the options: another attempt may have enough. Called while
// `error` is handled.
void pass_on_lack_of_memory(const std::exception& error) {
  if (process::failure_kind(error) == process::FailureKind::kOutOfMemory) throw;
}

// Calls `work`. An exception becomes an error in `part`, except for a lack of memory.
template <typename F>
void in_part(const PlanPart& part, const F& work) {
  try {
    work();
  } catch (const PlanError&) {
    throw;
  } catch (const std::exception& error) {
    pass_on_lack_of_memory(error);
    throw PlanError(part, message_of(error));
  }
}

// Puts the networks of a plan into evaluation mode. The destructor restores their modes and
// buffers, because a user's model may change buffers in evaluation mode, too.
class EvaluatedModel {
 public:
  explicit EvaluatedModel(const Plan& plan) : model_(plan.model) {
    for (const auto& [name, buffer] : model_.buffers()) before_.push_back(buffer.clone());
    for (const auto& [name, network] : plan.models) {
      modes_.emplace_back(network, network.is_training());
      network.train(false);
    }
  }
  ~EvaluatedModel() {
    for (const auto& [network, was_training] : modes_) network.train(was_training);
    const torch::NoGradGuard no_grad;
    const NamedTensors buffers = model_.buffers();
    for (std::size_t i = 0; i < std::min(buffers.size(), before_.size()); ++i) {
      torch::Tensor buffer = buffers[i].second;
      buffer.copy_(before_[i]);
    }
  }
  EvaluatedModel(const EvaluatedModel&) = delete;
  EvaluatedModel& operator=(const EvaluatedModel&) = delete;

 private:
  const Model& model_;
  std::vector<std::pair<Model, bool>> modes_;
  std::vector<torch::Tensor> before_;
};

// Where the model is now. In a run this is the device of the engine; before it, the caller's
// choice.
torch::Device device_of(const Model& model) {
  const NamedTensors parameters = model.parameters();
  return parameters.empty() ? torch::Device(torch::kCPU) : parameters.front().second.device();
}

// One dry run.
class Trial {
 public:
  Trial(const Plan& plan, const DryRunOptions& options)
      : plan_(plan), state_(state_of(plan)), options_(options), device_(device_of(plan.model)) {
    for (const auto& callback : plan.callbacks) {
      changes_batch_ = changes_batch_ || callback->traits().changes_batch;
    }
  }

  void run() const {
    if (options_.samples > 0) try_samples();
    if (options_.optimizer) try_optimizers();
    if (options_.files) {
      check_resume();
      check_weights();
      check_restore();
    }
  }

 private:
  void try_samples() const {
    const RandomStateScope random;
    const torch::NoGradGuard no_grad;
    const EvaluatedModel evaluated(plan_);
    for (const auto& [name, loader] : plan_.loaders) try_loader(name, loader);
  }

  void try_loader(const std::string& name, const data::Loader& loader) const {
    Batch batch;
    in_part(loader_part(name), [&] { batch = first_samples(loader, options_.samples); });
    // A callback of the user's may prepare the input, as a transform does.
    if (!plan_.keys || changes_batch_) return;
    if (!device_.is_cpu()) batch = batch.to(device_);
    try_model(name, batch);
    const std::vector<LossTerm> terms = loss_terms(*plan_.keys);
    for (std::size_t i = 0; i < terms.size(); ++i) {
      check_names(name, batch, terms[i], i);
      try_loss(name, loader, batch, terms[i]);
    }
    try_metrics(name, batch);
  }

  void try_model(const std::string& name, Batch& batch) const {
    in_part(loader_part(name), [&] {
      const std::vector<std::string> keys = plan_.keys->input_keys.empty()
                                                ? std::vector{plan_.keys->input_key}
                                                : plan_.keys->input_keys;
      std::vector<std::string> inputs;
      for (const std::string& key : plan_.model.takes_batch() ? std::vector<std::string>() : keys) {
        inputs.push_back(data::describe(tensor_of(batch, key)));
      }
      if (inputs.empty()) inputs = {"a batch with " + join(batch.keys(), ", ")};
      try {
        const auto autocast = mixed_precision();
        forward_keys(plan_.model, *plan_.keys, batch, batch);
        if (plan_.precision.is_mixed()) widen(batch);
      } catch (const std::exception& error) {
        pass_on_lack_of_memory(error);
        throw ConfigError("the model does not fit its samples, {}: {}", join(inputs, " and "),
                          message_of(error));
      }
    });
  }

  // For as long as it exists, operations have the run's precision, if the model is where the run
  // computes. A config is tried before the model moves to a GPU, and the CPU may lack the type.
  std::optional<AutocastScope> mixed_precision() const {
    if (device_.type() != plan_.engine->device().type()) return std::nullopt;
    return std::optional<AutocastScope>(std::in_place, plan_.precision, device_);
  }

  // Checks the names in an item of `losses`. If there is none, the only term has the names of
  // criterion, output_key and target_key, and try_loss() finds what is wrong with them.
  void check_names(const std::string& loader, const Batch& batch, const LossTerm& term,
                   std::size_t index) const {
    if (plan_.keys->losses.empty() || !has_criterion(state_)) return;
    const PlanPart part = {.path = fmt::format("runner/losses/{}", index),
                           .title = fmt::format("losses[{}]", index)};
    if (!term.criterion.empty() && !state_.criterions.contains(term.criterion)) {
      throw PlanError(part,
                      fmt::format("criterion: the run has no criterion '{}'; {}", term.criterion,
                                  suggest(term.criterion, state_.criterions.names())));
    }
    for (const auto& [option, key] :
         {std::pair("output", term.output), std::pair("target", term.target)}) {
      if (batch.contains(key)) continue;
      throw PlanError(part, fmt::format("{}: the batches of loader '{}' have no '{}'; {}", option,
                                        loader, key, suggest(key, batch.keys())));
    }
  }

  void try_loss(const std::string& name, const data::Loader& loader, const Batch& batch,
                const LossTerm& term) const {
    const PlanPart part = criterion_part(term.criterion);
    Criterion criterion;
    in_part(part, [&] { criterion = criterion_of(state_, term.criterion); });
    if (!criterion) return;
    torch::Tensor output, target;
    in_part(loader_part(name), [&] {
      output = tensor_of(batch, term.output);
      target = tensor_of(batch, term.target);
      const bool more = options_.targets > options_.samples;
      const torch::Tensor targets =
          more ? tensor_of(targets_of(loader, batch, term), term.target) : target;
      criterion.check_classes(output, targets);
    });
    if (!criterion.is_module()) return;
    in_part(part, [&] {
      try {
        criterion.check_shapes(output, target);
        const auto autocast = mixed_precision();
        criterion(output, target);
      } catch (const std::exception& error) {
        pass_on_lack_of_memory(error);
        throw ConfigError("does not fit the model's output {} and the targets {} of {}: {}",
                          data::describe(output), data::describe(target), name, message_of(error));
      }
    });
  }

  // More samples of the loader, unless the target is an output of the model, which they have not.
  Batch targets_of(const data::Loader& loader, const Batch& tried, const LossTerm& term) const {
    Batch more = first_samples(loader, options_.targets);
    return more.contains(term.target) ? more : tried;
  }

  static PlanPart criterion_part(const std::string& name) {
    if (name.empty()) return named_part("criterion");
    return {.path = "criterions/" + name, .title = fmt::format("criterion '{}'", name)};
  }

  void try_metrics(const std::string& loader, Batch& batch) const {
    for (const auto& callback : plan_.callbacks) {
      in_part(part_of(callback), [&] { callback->dry_run(loader, batch); });
    }
  }

  PlanPart part_of(const CallbackPtr& callback) const {
    const auto& given = plan_.options.callbacks;
    const auto at = std::ranges::find(given, callback) - given.begin();
    return {.path = fmt::format("callbacks/{}", at), .title = callback->name()};
  }

  // Makes optimizers and schedulers, and lets the callbacks check their options, as the loop does.
  void try_optimizers() const {
    std::vector<Tried> all;
    for (const auto& planned : plan_.optimizers) all.push_back(try_optimizer(planned));
    State state = state_of(plan_);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string& name = plan_.optimizers[i].name;
      state.optimizers.set(name, all[i].optimizer.get());
      if (all[i].scheduler == nullptr) continue;
      state.schedulers.set(name, all[i].scheduler.get());
      if (state.scheduler == nullptr) state.scheduler = all[i].scheduler.get();
    }
    if (!all.empty()) state.optimizer = all.front().optimizer.get();
    for (const auto& callback : plan_.callbacks) {
      in_part(part_of(callback), [&] { callback->check(state); });
    }
  }

  struct Tried {
    std::unique_ptr<optim::FlatParameters> parameters;
    std::unique_ptr<optim::Optimizer> optimizer;
    std::unique_ptr<optim::Scheduler> scheduler;  // null if there is none
  };

  Tried try_optimizer(const PlannedOptimizer& planned) const {
    // The optimizer is made of copies. It would move the parameters themselves, which must not
    // happen before the workers are started.
    NamedTensors copies;
    for (const auto& [name, parameter] : parameters_of(plan_, planned)) {
      copies.push_back(
          {name, parameter.detach().clone().set_requires_grad(parameter.requires_grad())});
    }
    Tried tried{.parameters = std::make_unique<optim::FlatParameters>(copies)};
    in_part(optimizer_part(plan_, planned),
            [&] { tried.optimizer = make_optimizer(plan_, planned, *tried.parameters); });
    if (planned.scheduler) {
      const bool by_name = !plan_.options.schedulers.empty();
      in_part(by_name ? optimizer_part(plan_, planned, "scheduler") : named_part("scheduler"),
              [&] { tried.scheduler = try_schedule(planned, *tried.optimizer); });
    }
    return tried;
  }

  // Also steps through the whole run, to check that the scheduler has enough steps for it.
  std::unique_ptr<optim::Scheduler> try_schedule(const PlannedOptimizer& planned,
                                                 optim::Optimizer& optimizer) const {
    const optim::ScheduleContext run = schedule_of(plan_, planned);
    const std::int64_t steps = run.steps_per_epoch;
    auto scheduler = planned.scheduler.make(optimizer, run);
    const double lr = optimizer.lr();
    constexpr std::int64_t kMost = 1'000'000;  // more steps would take too long
    std::int64_t update = 0;
    for (std::int64_t i = 0; i < kMost && !scheduler->needs_metric(); ++i) {
      update = scheduler->per() == optim::Per::kBatch ? update + 1 : (update / steps + 1) * steps;
      if (update >= run.steps(optim::Per::kBatch)) break;
      scheduler->step();
    }
    optimizer.set_lr(lr);
    return scheduler;
  }

  void check_weights() const {
    std::vector<PlannedWeights> files;
    const bool has_several = !plan_.options.network_weights.empty();
    in_part(named_part(has_several ? "network_weights" : "weights"),
            [&] { files = planned_weights(plan_.model, plan_.options); });
    for (const PlannedWeights& file : files) {
      in_part(named_part(file.option), [&] { first_weights(file.model, file.weights); });
    }
  }

  void check_restore() const {
    in_part(named_part("restore"), [&] { read_parts(plan_.options.restore); });
  }

  void check_resume() const {
    const auto& resume = plan_.options.resume;
    if (!resume || fs::exists(*resume)) return;
    const auto& logdir = plan_.options.logdir;
    const bool in_logdir =
        logdir && fs::exists(checkpoint::folder_in(*logdir) / (*resume + ".pth"));
    if (in_logdir) return;
    throw PlanError(named_part("resume"),
                    fmt::format("there is no such checkpoint: '{}'", *resume));
  }

  const Plan& plan_;
  const State state_;  // before the run
  DryRunOptions options_;
  torch::Device device_;
  bool changes_batch_ = false;  // a callback may change what the model or metrics get
};

}  // namespace

void dry_run(const Plan& plan, const DryRunOptions& options) {
  Trial(plan, options).run();
}

Batch first_samples(const data::Loader& loader, std::int64_t count) {
  if (loader.iterable()) {
    auto batch = data::read_stream({.stream = loader.iterable(),
                                    .batch_size = count,
                                    .batches = 1,
                                    .collate = loader.collate()})
                     .next();
    if (!batch) throw DataError("the stream is empty");
    return std::move(*batch);
  }
  const std::vector<std::int64_t> indices = loader.dataset()->examples(count);
  if (indices.empty()) throw DataError("the data set is empty");
  return data::make_batch(*loader.dataset(), loader.collate(), {.indices = indices});
}

const torch::Tensor& tensor_of(const Batch& batch, const std::string& key) {
  if (!batch.contains(key)) {
    throw ConfigError("its batches have no '{}', which the run needs; {}", key,
                      suggest(key, batch.keys()));
  }
  return batch[key];
}

}  // namespace lockstep
