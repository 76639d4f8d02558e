#include "lockstep/train/dry_run.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include "lockstep/base/text.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/data/describe.h"
#include "lockstep/optim/flat_parameters.h"
#include "lockstep/train/random.h"
#include "lockstep/train/train_step.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Calls `work`. An exception becomes an error in `part`.
template <typename F>
void in_part(const PlanPart& part, const F& work) {
  try {
    work();
  } catch (const PlanError&) {
    throw;
  } catch (const std::exception& error) {
    throw PlanError(part, message_of(error));
  }
}

// Puts a model into evaluation mode. The destructor restores its mode and its buffers, because a
// user's model may change buffers in evaluation mode, too.
class EvaluatedModel {
 public:
  explicit EvaluatedModel(const Model& model) : model_(model), was_training_(model.is_training()) {
    for (const auto& [name, buffer] : model_.buffers()) before_.push_back(buffer.clone());
    model_.train(false);
  }
  ~EvaluatedModel() {
    model_.train(was_training_);
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
  bool was_training_;
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
      : plan_(plan), options_(options), device_(device_of(plan.model)) {
    for (const auto& callback : plan.callbacks) {
      changes_batch_ = changes_batch_ || callback->traits().changes_batch;
    }
  }

  void run() const {
    if (options_.samples > 0) try_samples();
    if (options_.optimizer) try_optimizer();
    if (options_.files) {
      check_resume();
      check_weights();
    }
  }

 private:
  void try_samples() const {
    const RandomStateScope random;
    const torch::NoGradGuard no_grad;
    const EvaluatedModel evaluated(plan_.model);
    for (const auto& [name, loader] : plan_.loaders) try_loader(name, loader);
  }

  void try_loader(const std::string& name, const data::Loader& loader) const {
    Batch batch;
    in_part(loader_part(name), [&] { batch = first_samples(loader, options_.samples); });
    // A callback of the user's may prepare the input, as a transform does.
    if (!plan_.keys || changes_batch_) return;
    if (!device_.is_cpu()) batch = batch.to(device_);
    try_model(name, batch);
    if (plan_.criterion) try_criterion(name, loader, batch);
    try_metrics(name, batch);
  }

  void try_model(const std::string& name, Batch& batch) const {
    in_part(loader_part(name), [&] {
      const torch::Tensor input = tensor_of(batch, plan_.keys->input_key);
      try {
        batch.set(plan_.keys->output_key, plan_.model(input));
      } catch (const std::exception& error) {
        throw ConfigError("the model does not fit its samples, {}: {}", data::describe(input),
                          message_of(error));
      }
    });
  }

  void try_criterion(const std::string& name, const data::Loader& loader,
                     const Batch& batch) const {
    const torch::Tensor& output = batch[plan_.keys->output_key];
    torch::Tensor target;
    in_part(loader_part(name), [&] {
      target = tensor_of(batch, plan_.keys->target_key);
      const bool more = options_.targets > options_.samples;
      plan_.criterion.check_classes(
          output, more ? tensor_of(first_samples(loader, options_.targets), plan_.keys->target_key)
                       : target);
    });
    if (!plan_.criterion.is_module()) return;
    in_part(named_part("criterion"), [&] {
      try {
        plan_.criterion.check_shapes(output, target);
        plan_.criterion(output, target);
      } catch (const std::exception& error) {
        throw ConfigError("does not fit the model's output {} and the targets {} of {}: {}",
                          data::describe(output), data::describe(target), name, message_of(error));
      }
    });
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

  // Makes optimizer and scheduler, and lets the callbacks check their options, as the loop does.
  void try_optimizer() const {
    // The optimizer is made of copies. It would move the parameters themselves, which must not
    // happen before the workers are started.
    NamedTensors copies;
    for (const auto& [name, parameter] : plan_.model.parameters()) {
      copies.push_back(
          {name, parameter.detach().clone().set_requires_grad(parameter.requires_grad())});
    }
    optim::FlatParameters parameters(copies);
    std::unique_ptr<optim::Optimizer> optimizer;
    std::unique_ptr<optim::Scheduler> scheduler;
    in_part(named_part("optimizer"), [&] { optimizer = plan_.optimizer.make(parameters); });
    if (plan_.scheduler) {
      in_part(named_part("scheduler"), [&] { scheduler = try_schedule(*optimizer); });
    }
    State state = state_of(plan_);
    state.optimizer = optimizer.get();
    state.scheduler = scheduler.get();
    for (const auto& callback : plan_.callbacks) {
      in_part(part_of(callback), [&] { callback->check(state); });
    }
  }

  // Also steps through the whole run, to check that the scheduler has enough steps for it.
  std::unique_ptr<optim::Scheduler> try_schedule(optim::Optimizer& optimizer) const {
    const optim::ScheduleContext run = plan_.length.schedule();
    const std::int64_t steps = run.steps_per_epoch;
    auto scheduler = plan_.scheduler.make(optimizer, run);
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
    const auto& weights = plan_.options.weights;
    if (!weights) return;
    in_part(named_part("weights"),
            [&] { plan_.model.check_state(checkpoint::load_weights(*weights)); });
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
  DryRunOptions options_;
  torch::Device device_;
  bool changes_batch_ = false;  // a callback may change what the model or metrics get
};

}  // namespace

void dry_run(const Plan& plan, const DryRunOptions& options) {
  Trial(plan, options).run();
}

Batch first_samples(const data::Loader& loader, std::int64_t count) {
  const std::int64_t size = loader.dataset()->size();
  if (size == 0) throw DataError("the data set is empty");
  std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(count, size)));
  std::iota(indices.begin(), indices.end(), 0);
  return loader.dataset()->gather(indices, {});
}

const torch::Tensor& tensor_of(const Batch& batch, const std::string& key) {
  if (!batch.contains(key)) {
    throw ConfigError("its batches have no '{}', which the run needs; {}", key,
                      suggest(key, batch.keys()));
  }
  return batch[key];
}

}  // namespace lockstep
