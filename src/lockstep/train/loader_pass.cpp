#include "lockstep/train/loader_pass.h"

#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/process/interrupt.h"
#include "lockstep/train/merge.h"
#include "lockstep/train/random.h"

namespace lockstep {

LoaderPass::LoaderPass(State& state, const std::vector<CallbackPtr>& callbacks,
                       std::function<void(State&)> handle_batch, TrainStep* step,
                       Profiler& profiler, PassSettings settings)
    : state_(state),
      callbacks_(callbacks),
      handle_batch_(std::move(handle_batch)),
      step_(step),
      profiler_(profiler),
      settings_(std::move(settings)),
      shards_(comm::leaves_of({.rank = state.comm->rank(), .size = state.comm->size()},
                              static_cast<int>(settings_.shards))) {
  state_.loss_key = settings_.loss_key;
  state_.running_metrics = [this] { return running_metrics(); };
}

void LoaderPass::run(const Start& start) {
  const data::Loader loader = state_.loaders.at(start.loader);
  data::WindowOptions window = start.window;
  window.key = {.seed = state_.seed, .epoch = state_.progress.epoch};
  const data::BatchWindow epoch(loader, window, settings_.shards);
  const data::BatchSplit split = data::batch_split(loader, settings_.shards);
  const bool is_train = step_ != nullptr && is_train_loader(start.loader);
  state_.set_pass({.loader = start.loader,
                   .is_train = is_train,
                   .loader_batch = window.first_batch,
                   .loader_batches = epoch.batches(),
                   .loader_samples = epoch.samples_before(window.first_batch),
                   .loader_sample_count = epoch.samples_before(epoch.batches()),
                   .loader_batch_size = split.largest(),
                   .may_write_gradients =
                       is_train && settings_.unseen_gradients && !step_->sends_gradients_early()});
  if (window.first_batch == 0) {
    state_.loader_end_requested = false;
    averages_.clear();
  }

  state_.model.train(state_.is_train);
  const torch::AutoGradMode grad_mode(state_.is_train);
  const Profiler::Pass whole(profiler_);
  {
    Profiler::TimedScope scope(profiler_, Phase::kCallbacks);
    notify_all(callbacks_, &Callback::on_loader_start, state_);
  }

  decide();  // a callback may have requested the end already, on one rank
  auto stream = epoch.stream({.first_shard = shards_.begin, .count = shards_.count()});
  for (std::int64_t index = window.first_batch;
       index < epoch.batches() && !state_.loader_end_requested; ++index) {
    try {
      one_batch(start, index, epoch, stream);
    } catch (...) {
      failed_in_ = place();
      throw;
    }
    decide();
  }
  state_.can_snapshot = false;
  state_.batch = {};
  // If the pass ended early, gradients may still wait for an update. A later epoch must not inherit
  // them.
  if (state_.is_train && step_->due(/*last=*/true)) update(state_.batch_metrics);

  gather();
  Metrics averages;
  for (const auto& [name, average] : averages_) averages.merge(average.compute());
  state_.loader_metrics = broadcast(averages, *state_.comm);
  if (state_.is_train) add_hyper_metrics(state_.loader_metrics);
  notify_end(callbacks_, &Callback::on_loader_end, state_);
  agree_on_metrics();
}

// A callback may have computed a metric only from this worker's samples. Then rank 0's value is
// used, with a warning.
void LoaderPass::agree_on_metrics() {
  if (state_.comm->size() == 1) return;
  StateDict mine;
  for (const auto& [name, value] : state_.loader_metrics) mine.set(name, value);
  const auto all = lockstep::gather(mine, *state_.comm);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    for (const auto& name : all[rank].keys()) {
      const auto own = state_.loader_metrics.find(name);
      const auto theirs = all[rank].get<double>(name);
      if (own == state_.loader_metrics.end() || own->second == theirs ||
          (std::isnan(own->second) && std::isnan(theirs))) {
        continue;
      }
      warn_once(fmt::format(
          "metric '{}': the workers have different values, and rank 0's is used; put numbers of a "
          "batch into state.batch_metrics, or accumulate in a metric and use merged()",
          name));
    }
  }
  state_.loader_metrics = broadcast(state_.loader_metrics, *state_.comm);
}

void LoaderPass::update(Metrics& metrics) {
  step_->update(metrics);
  state_.progress.update_step += 1;
}

void LoaderPass::one_batch(const Start& start, std::int64_t index, const data::BatchWindow& epoch,
                           data::BatchWindow::Stream& stream) {
  state_.can_snapshot = false;
  state_.loader_batch = index + 1;
  const std::int64_t samples = epoch.samples(index);
  state_.loader_samples += samples;
  state_.comm->set_progress(state_.progress.epoch, state_.loader_batch);
  done_.clear();
  const bool last = state_.loader_batch == state_.loader_batches;
  if (state_.is_train) {
    step_->begin_batch({.samples = samples, .batch_size = state_.loader_batch_size, .last = last});
  }
  for (int local = 0; local < shards_.count(); ++local) {
    const std::int64_t shard = shards_.begin + local;
    if (state_.is_train) step_->begin_shard(local);
    if (epoch.slice(index, shard).count > 0) one_shard(start, index, shard, stream);
    if (state_.is_train) step_->end_shard(local);
  }
  Metrics of_update;
  if (state_.is_train) {
    if (step_->due(last)) update(of_update);
    // Counted before callbacks, so a checkpoint made in one resumes after this batch.
    state_.progress.batch_step += 1;
    state_.progress.sample_step += samples;
  }
  for (ShardState& shard : done_) {
    shard.batch_metrics.insert(of_update.begin(), of_update.end());
  }
  finish_shards();
  profiler_.count_batch();
  state_.can_snapshot = step_ != nullptr && step_->between_steps();
  Profiler::TimedScope scope(profiler_, Phase::kCallbacks);
  notify_end(callbacks_, &Callback::on_step, state_);
}

void LoaderPass::one_shard(const Start& start, std::int64_t index, std::int64_t shard,
                           data::BatchWindow::Stream& stream) {
  state_.set_shard({.shard = shard});
  {
    Profiler::TimedScope scope(profiler_, Phase::kData);
    seed_shard(start, index, shard, Draws::kData);
    state_.batch = *stream.next();
    if (!state_.engine->device().is_cpu()) state_.batch = state_.batch.to(state_.engine->device());
  }
  seed_shard(start, index, shard, Draws::kModel);
  {
    Profiler::TimedScope scope(profiler_, Phase::kCallbacks);
    notify_all(callbacks_, &Callback::on_batch_start, state_);
  }
  {
    Profiler::TimedScope scope(profiler_, Phase::kForward);
    handle_batch_(state_);
  }
  {
    Profiler::TimedScope scope(profiler_, Phase::kCallbacks);
    notify_all(callbacks_, &Callback::on_forward, state_);
  }
  check_loss();
  if (state_.is_train) backward();
  done_.push_back(state_.take_shard());
}

// After the update, calls on_batch_end for each of this worker's shards.
void LoaderPass::finish_shards() {
  for (ShardState& shard : done_) {
    state_.set_shard(std::move(shard));
    record_batch_metrics();
    Profiler::TimedScope scope(profiler_, Phase::kCallbacks);
    notify_end(callbacks_, &Callback::on_batch_end, state_);
  }
}

// A request of one worker applies to all workers, after the same batch.
void LoaderPass::decide() {
  constexpr std::uint64_t kEndLoader = 1;
  constexpr int kSignal = 8;
  // While gradients wait for a later batch, a signal waits, too, so that a checkpoint can be
  // written.
  const int pending = state_.can_snapshot ? process::InterruptGuard::pending() : 0;
  std::uint64_t mine = static_cast<std::uint64_t>(pending) << kSignal;
  if (state_.loader_end_requested) mine |= kEndLoader;
  std::uint64_t signal = 0;
  const auto votes = [&] {
    Profiler::TimedScope scope(profiler_, Phase::kWait);
    return state_.comm->vote(mine);
  }();
  for (const std::uint64_t vote : votes) {
    if ((vote & kEndLoader) != 0) state_.loader_end_requested = true;
    signal = std::max(signal, vote >> kSignal);
  }
  if (signal == 0) return;
  process::InterruptGuard::take();
  throw Interrupted(static_cast<int>(signal));
}

void LoaderPass::seed_shard(const Start& start, std::int64_t index, std::int64_t shard,
                            Draws draws) const {
  seed_draws({.seed = state_.seed,
              .epoch = state_.progress.epoch,
              .loader = start.index,
              .batch = index,
              .shard = shard,
              .draws = draws});
}

std::string LoaderPass::place() const {
  // An evaluation is one pass, so it has no epochs.
  const std::string epoch =
      step_ == nullptr ? "" : fmt::format(" epoch {},", state_.progress.epoch);
  return fmt::format("loader '{}',{} batch {}", state_.loader, epoch, state_.loader_batch);
}

// Called with the loss of a batch that was handled. If terminate_on_nan is set, check_loss() has
// already thrown.
void LoaderPass::warn_of_loss(double loss) {
  if (std::isfinite(loss) || std::exchange(warned_of_loss_, true)) return;
  warn(fmt::format(
      "{}: '{}' is {}, and the run goes on; usual causes are a learning rate that is too large and "
      "data that are not finite. Set terminate_on_nan to stop there",
      place(), settings_.loss_key, loss));
}

void LoaderPass::check_loss() const {
  if (!settings_.terminate_on_nan || !state_.batch.contains(settings_.loss_key)) return;
  if (state_.loss_over() == mean_over(0)) return;  // nothing in the batch counts
  const torch::Tensor& loss = state_.batch[settings_.loss_key];
  if (loss.isfinite().all().item<bool>()) return;
  throw Error("{}: '{}' is {}, expected a finite number (terminate_on_nan is set)", place(),
              settings_.loss_key,
              loss.numel() == 1 ? fmt::to_string(loss.item<double>()) : "not finite");
}

void LoaderPass::backward() {
  if (!state_.batch.contains(settings_.loss_key)) {
    throw ConfigError(
        "loader '{}': nothing to train on: handle_batch left no '{}' in the batch "
        "(batch has: {}); is a criterion missing?",
        state_.loader, settings_.loss_key, fmt::join(state_.batch.keys(), ", "));
  }
  const torch::Tensor& loss = state_.batch[settings_.loss_key];
  if (loss.numel() != 1) {
    throw ConfigError(
        "loader '{}': '{}' has {} elements, expected one number: the mean or the sum over the "
        "batch",
        state_.loader, settings_.loss_key, loss.numel());
  }
  {
    Profiler::TimedScope scope(profiler_, Phase::kBackward);
    step_->backward(loss, state_.loss_over(), state_.batch.size());
  }
  Profiler::TimedScope scope(profiler_, Phase::kCallbacks);
  notify_all(callbacks_, &Callback::on_backward, state_);
}

void LoaderPass::add_hyper_metrics(Metrics& metrics) const {
  metrics["lr"] = state_.optimizer->lr();
  if (const auto momentum = state_.optimizer->momentum()) metrics["momentum"] = *momentum;
}

void LoaderPass::record_batch_metrics() {
  const std::string& key = settings_.loss_key;
  const LossOver loss_over = state_.loss_over();
  if (state_.batch.contains(key) && state_.batch[key].numel() == 1) {
    if (loss_over == mean_over(0)) {
      // The batch has no loss. If this is so in the whole pass, the loader's loss is NaN.
      record(key, 0, loss_over);
    } else {
      const double loss = state_.batch[key].item<double>();
      warn_of_loss(loss);
      // A sum is shown per sample, because otherwise it would change with the batch size and the
      // shards.
      const bool is_sum = loss_over.kind == LossOver::Kind::kSum;
      state_.batch_metrics[key] = is_sum ? loss / static_cast<double>(state_.batch.size()) : loss;
    }
  }
  for (const auto& [name, value] : state_.batch_metrics) {
    const auto said = state_.said.metrics.find(name);
    if (name == key) {
      record(name, value, loss_over);
    } else {
      record(name, value, said == state_.said.metrics.end() ? mean_over_samples() : said->second);
    }
  }
  if (!settings_.log_batches) return;
  Record record{Scope::kBatch, state_.loader, state_.progress, state_.batch_metrics};
  if (state_.is_train) {
    add_hyper_metrics(record.metrics);
  } else {
    record.step = (state_.progress.epoch - 1) * state_.loader_sample_count + state_.loader_samples;
  }
  for (const auto& logger : state_.loggers) logger->log_metrics(record);
}

void LoaderPass::record(const std::string& name, double value, const LossOver& over) {
  auto average = averages_.find(name);
  if (average == averages_.end()) {
    average = averages_.emplace(name, metric::Additive({.name = name})).first;
  }
  const std::int64_t samples = state_.batch.size();
  const bool weighted = over.kind == LossOver::Kind::kWeight;
  average->second.update({.value = value,
                          .weight = weighted ? over.weight : static_cast<double>(samples),
                          .samples = samples});
}

Metrics LoaderPass::running_metrics() const {
  Metrics running;
  for (const auto& [name, average] : averages_) running[name] = average.compute().at(name);
  for (const auto& callback : callbacks_) running.merge(callback->running_metrics());
  return running;
}

// Names may differ between ranks: a rank without samples has no averages.
void LoaderPass::gather() {
  if (state_.comm->size() == 1) return;
  const auto states = lockstep::gather(averages(), *state_.comm);
  if (!state_.comm->is_primary()) {
    averages_.clear();
    return;
  }
  for (std::size_t rank = 1; rank < states.size(); ++rank) {
    for (const auto& name : states[rank].keys()) {
      averages_.try_emplace(name, metric::AdditiveOptions{.name = name})
          .first->second.merge(states[rank].get<StateDict>(name));
    }
  }
}

StateDict LoaderPass::averages() const {
  StateDict saved;
  for (const auto& [name, average] : averages_) saved.set(name, average.state());
  return saved;
}

void LoaderPass::load_averages(const StateDict& saved) {
  averages_.clear();
  if (!state_.comm->is_primary()) return;  // rank 0 has those of all ranks
  for (const auto& name : saved.keys()) {
    metric::Additive average({.name = name});
    average.load_state(saved.get<StateDict>(name));
    averages_.emplace(name, std::move(average));
  }
}

}  // namespace lockstep
