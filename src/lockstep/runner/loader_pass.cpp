#include "lockstep/runner/loader_pass.h"

#include "lockstep/base/error.h"
#include "lockstep/runner/interrupt.h"
#include "lockstep/runner/random.h"

namespace lockstep {

LoaderPass::LoaderPass(State& state, const std::vector<CallbackPtr>& callbacks,
                       std::function<void(State&)> handle_batch, TrainStep* step,
                       Profiler& profiler, PassSettings settings)
    : state_(state),
      callbacks_(callbacks),
      handle_batch_(std::move(handle_batch)),
      step_(step),
      profiler_(profiler),
      settings_(std::move(settings)) {
  state_.running_metrics = [this] { return running_metrics(); };
}

void LoaderPass::run(const Start& start) {
  const data::Loader loader = state_.loaders.at(start.loader);
  state_.loader = start.loader;
  state_.is_train = step_ != nullptr && is_train_loader(start.loader);
  state_.loader_batch = start.first_batch;
  state_.loader_batches = loader.batches();
  state_.loader_batch_size = loader.options().batch_size;
  state_.loader_sample_count = loader.samples();
  state_.loader_samples = std::min(start.first_batch * state_.loader_batch_size, loader.samples());
  state_.loader_metrics.clear();
  if (start.first_batch == 0) {
    state_.loader_end_requested = false;
    averages_.clear();
  }

  state_.model.train(state_.is_train);
  const torch::AutoGradMode grad_mode(state_.is_train);
  notify_all(callbacks_, &Callback::on_loader_start, state_);

  auto stream = loader.stream(
      {.seed = state_.seed, .epoch = state_.progress.epoch, .first_batch = start.first_batch});
  for (std::int64_t index = start.first_batch; !state_.loader_end_requested; ++index) {
    std::optional<Batch> batch;
    {
      Profiler::Scope scope(profiler_, Part::kData);
      seed_batch(start, index, Draws::kData);
      batch = stream.next();
      if (batch && !state_.engine->device().is_cpu()) batch = batch->to(state_.engine->device());
    }
    if (!batch) break;
    one_batch(start, index, std::move(*batch));
    // Where gradients wait for a later batch, a signal waits, too: a checkpoint can be written
    // then.
    if (state_.can_snapshot) InterruptGuard::check();
  }
  state_.can_snapshot = false;
  state_.batch = {};
  // Where the pass was cut short, gradients may still wait: no later epoch shall inherit them.
  if (state_.is_train && step_->due(/*last=*/true)) step_->update(state_.batch_metrics);

  for (const auto& [name, average] : averages_) state_.loader_metrics.merge(average.compute());
  if (state_.is_train) add_hyper_metrics(state_.loader_metrics);
  notify_end(callbacks_, &Callback::on_loader_end, state_);
}

void LoaderPass::one_batch(const Start& start, std::int64_t index, Batch batch) {
  state_.can_snapshot = false;
  state_.loader_batch = index + 1;
  state_.batch = std::move(batch);
  state_.batch_metrics.clear();
  const std::int64_t samples = state_.batch.size();
  state_.loader_samples += samples;
  seed_batch(start, index, Draws::kModel);
  {
    Profiler::Scope scope(profiler_, Part::kCallbacks);
    notify_all(callbacks_, &Callback::on_batch_start, state_);
  }
  {
    Profiler::Scope scope(profiler_, Part::kForward);
    handle_batch_(state_);
  }
  {
    Profiler::Scope scope(profiler_, Part::kCallbacks);
    notify_all(callbacks_, &Callback::on_forward, state_);
  }
  check_loss();
  if (state_.is_train) {
    train_batch();
    // Counted before callbacks, so a checkpoint made in one resumes after this batch.
    state_.progress.batch_step += 1;
    state_.progress.sample_step += samples;
  }
  record_batch_metrics();
  profiler_.count_batch();
  state_.can_snapshot = step_ != nullptr && step_->between_steps();
  Profiler::Scope scope(profiler_, Part::kCallbacks);
  notify_end(callbacks_, &Callback::on_batch_end, state_);
}

void LoaderPass::seed_batch(const Start& start, std::int64_t index, Draws draws) const {
  seed_draws({.seed = state_.seed,
              .epoch = state_.progress.epoch,
              .loader = start.index,
              .batch = index,
              .draws = draws});
}

void LoaderPass::check_loss() const {
  if (!settings_.terminate_on_nan || !state_.batch.contains(settings_.loss_key)) return;
  const torch::Tensor& loss = state_.batch[settings_.loss_key];
  if (loss.isfinite().all().item<bool>()) return;
  throw Error(
      "loader '{}', epoch {}, batch {}: '{}' is {}, expected a finite number "
      "(terminate_on_nan is set)",
      state_.loader, state_.progress.epoch, state_.loader_batch, settings_.loss_key,
      loss.numel() == 1 ? fmt::to_string(loss.item<double>()) : "not finite");
}

void LoaderPass::train_batch() {
  if (!state_.batch.contains(settings_.loss_key)) {
    throw ConfigError(
        "loader '{}': nothing to train on: handle_batch left no '{}' in the batch "
        "(batch has: {}); is a criterion missing?",
        state_.loader, settings_.loss_key, fmt::join(state_.batch.keys(), ", "));
  }
  const torch::Tensor& loss = state_.batch[settings_.loss_key];
  if (loss.numel() != 1) {
    throw ConfigError(
        "loader '{}': '{}' has {} elements, expected one number: the mean over the "
        "batch",
        state_.loader, settings_.loss_key, loss.numel());
  }
  {
    Profiler::Scope scope(profiler_, Part::kBackward);
    step_->backward(loss, state_.batch.size());
  }
  {
    Profiler::Scope scope(profiler_, Part::kCallbacks);
    notify_all(callbacks_, &Callback::on_backward, state_);
  }
  const bool last = state_.loader_batch == state_.loader_batches || state_.loader_end_requested;
  if (step_->due(last)) {
    Profiler::Scope scope(profiler_, Part::kOptimizer);
    step_->update(state_.batch_metrics);
  }
}

void LoaderPass::add_hyper_metrics(Metrics& metrics) const {
  metrics["lr"] = state_.optimizer->lr();
  if (const auto momentum = state_.optimizer->momentum()) metrics["momentum"] = *momentum;
}

void LoaderPass::record_batch_metrics() {
  if (state_.batch.contains(settings_.loss_key)) {
    const torch::Tensor& loss = state_.batch[settings_.loss_key];
    if (loss.numel() == 1) state_.batch_metrics[settings_.loss_key] = loss.item<double>();
  }
  const std::int64_t samples = state_.batch.size();
  for (const auto& [name, value] : state_.batch_metrics) {
    auto average = averages_.find(name);
    if (average == averages_.end()) {
      average = averages_.emplace(name, metric::Additive({.name = name})).first;
    }
    average->second.update(value, samples);
  }
  if (!settings_.log_batches) return;
  Record record{Scope::kBatch, state_.loader, state_.progress, state_.batch_metrics};
  if (state_.is_train) add_hyper_metrics(record.metrics);
  for (const auto& logger : state_.loggers) logger->log_metrics(record);
}

Metrics LoaderPass::running_metrics() const {
  Metrics running;
  for (const auto& [name, average] : averages_) running[name] = average.compute().at(name);
  for (const auto& callback : callbacks_) running.merge(callback->running_metrics());
  return running;
}

StateDict LoaderPass::averages() const {
  StateDict saved;
  for (const auto& [name, average] : averages_) saved.set(name, average.state());
  return saved;
}

void LoaderPass::load_averages(const StateDict& saved) {
  averages_.clear();
  for (const auto& name : saved.keys()) {
    metric::Additive average({.name = name});
    average.load_state(saved.get<StateDict>(name));
    averages_.emplace(name, std::move(average));
  }
}

}  // namespace lockstep
