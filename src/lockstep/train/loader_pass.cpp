#include "lockstep/train/loader_pass.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/compute/autocast.h"
#include "lockstep/process/affinity.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/interruption.h"
#include "lockstep/train/loader_wait.h"
#include "lockstep/train/merge.h"
#include "lockstep/train/mixed_precision.h"
#include "lockstep/train/random.h"
#include "lockstep/train/without_gradients.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_from(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The phase whose updates are the steps of the run: one that takes place in every batch. There is
// always one.
std::size_t counted_phase(const std::vector<Phase>& phases) {
  const auto found = std::ranges::find(phases, 1, &Phase::every);
  return static_cast<std::size_t>(found - phases.begin());
}

}  // namespace

LoaderPass::LoaderPass(State& state, const std::vector<CallbackPtr>& callbacks,
                       std::function<void(State&)> handle_batch, std::span<TrainStep> steps,
                       Profiler& profiler, PassSettings settings)
    : state_(state),
      callbacks_(callbacks),
      handle_batch_(std::move(handle_batch)),
      steps_(steps),
      profiler_(profiler),
      settings_(std::move(settings)),
      shards_(comm::leaves_of({.rank = state.comm->rank(), .size = state.comm->size()},
                              static_cast<int>(settings_.shards))),
      counted_phase_(counted_phase(settings_.phases)),
      feed_(settings_.copies),
      losses_(settings_.copies) {
  state_.loss_key = settings_.loss_key;
  state_.outputs_ready = [this] {
    if (state_.precision.is_mixed()) widen(state_, settings_.loss_key);
    notify_all(callbacks_, &Callback::on_outputs, state_);
  };
  state_.running_metrics = [this] { return running_metrics(); };
}

void LoaderPass::run(const Start& start) {
  const data::Loader loader = state_.loaders.at(start.loader);
  data::WindowOptions window = start.window;
  window.key = {.seed = state_.seed, .epoch = state_.progress.epoch};
  const data::BatchWindow epoch(loader, window, settings_.shards);
  const data::BatchSplit split = data::batch_split(loader, settings_.shards);
  const bool is_train = !steps_.empty() && is_train_loader(start.loader);
  const bool sends_early = std::ranges::any_of(
      steps_, [](const TrainStep& step) { return step.sends_gradients_early(); });
  state_.set_pass({.loader = start.loader,
                   .is_train = is_train,
                   .loader_batch = window.first_batch,
                   .loader_batches = epoch.batches(),
                   .loader_samples = epoch.samples_before(window.first_batch),
                   .loader_sample_count = epoch.samples_before(epoch.batches()),
                   .loader_batch_size = split.largest(),
                   .may_write_gradients = is_train && settings_.unseen_gradients && !sends_early});
  if (window.first_batch == 0) {
    state_.loader_end_requested = false;
    averages_.clear();
  }

  set_modes();
  const torch::AutoGradMode grad_mode(state_.is_train);
  const Profiler::Pass whole(profiler_);
  const Clock::time_point begin = Clock::now();
  waited_ = 0;
  {
    Profiler::TimedScope scope(profiler_, Activity::kCallbacks);
    const DrawKey key{.seed = state_.seed, .epoch = state_.progress.epoch, .loader = start.index};
    seed_hook(DrawHook::kLoaderStart, key);
    state_.continues = window.first_batch > 0;
    const auto hooks = [this] { notify_all(callbacks_, &Callback::on_loader_start, state_); };
    if (settings_.begin) {
      settings_.begin(hooks);
    } else {
      hooks();
    }
  }
  if (state_.is_train) train_modes_ = state_.model.modes();

  decide();  // a callback may have requested the end already, on one rank
  auto stream = epoch.stream({.first_shard = shards_.begin, .count = shards_.count()});
  feed_.drop();
  for (std::int64_t index = window.first_batch;
       index < epoch.batches() && !state_.loader_end_requested; ++index) {
    try {
      one_batch({.start = start, .epoch = epoch, .stream = stream, .index = index});
    } catch (...) {
      failed_in_ = place();
      throw;
    }
    decide(settings_.after_batch && settings_.after_batch());
  }
  warn_of_wait(loader, seconds_from(begin));
  state_.can_snapshot = false;
  state_.batch = {};
  // If the pass ended early, gradients may still wait for an update. A later epoch must not inherit
  // them.
  UpdateMetrics last;
  for (std::size_t phase = 0; state_.is_train && phase < steps_.size(); ++phase) {
    if (steps_[phase].due(/*last=*/true)) update(phase, last);
  }
  for (const auto& [name, value] : arrived(std::move(last))) state_.batch_metrics[name] = value;
  if (state_.scaler != nullptr) state_.scaler->adjust();

  gather();
  Metrics averages;
  for (const auto& [name, average] : averages_) averages.merge(average.compute());
  add_total_loss(averages);
  state_.loader_metrics = broadcast(averages, *state_.comm);
  if (state_.is_train) {
    for (const auto& [name, value] : hyper_metrics(state_)) state_.loader_metrics[name] = value;
  }
  seed_hook(DrawHook::kLoaderEnd,
            {.seed = state_.seed, .epoch = state_.progress.epoch, .loader = start.index});
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

// Networks without an optimizer are never in training mode.
void LoaderPass::set_modes() {
  state_.model.train(state_.is_train);
  for (const Model& network : settings_.untrained) network.train(false);
}

void LoaderPass::one_batch(const Place& at) {
  state_.can_snapshot = false;
  state_.loader_batch = at.index + 1;
  const std::int64_t samples = at.epoch.samples(at.index);
  state_.loader_samples += samples;
  state_.comm->set_progress(state_.progress.epoch, state_.loader_batch);
  state_.stepped.clear();
  done_.clear();
  is_read_ = false;
  losses_.clear();
  late_checks_.clear();
  UpdateMetrics of_updates;
  for (std::size_t phase = 0; phase < settings_.phases.size(); ++phase) {
    if (takes_place(phase)) run_phase(at, phase, of_updates);
  }
  // Gradients that wait for a later batch have the old scale, so it must not change under them.
  if (state_.scaler != nullptr && between_steps()) state_.scaler->adjust();
  if (state_.is_train) {
    // Counted before callbacks, so a checkpoint made in one resumes after this batch.
    state_.progress.batch_step += 1;
    state_.progress.sample_step += samples;
  }
  // All work of the batch is given to the device. Before the host waits for results, it gives it
  // the next batch.
  read_ahead(at);
  finish_shards(std::move(of_updates));
  profiler_.count_batch();
  state_.can_snapshot = !steps_.empty() && between_steps();
  Profiler::TimedScope scope(profiler_, Activity::kCallbacks);
  notify_end(callbacks_, &Callback::on_step, state_);
  if (state_.checkpointer != nullptr) state_.checkpointer->report_written();
}

// Batches are counted over the whole run, so that a phase takes place also if an epoch has fewer
// batches than `every`. In evaluation every phase sees every sample.
bool LoaderPass::takes_place(std::size_t phase) const {
  const std::int64_t every = settings_.phases[phase].every;
  return !state_.is_train || (state_.progress.batch_step + 1) % every == 0;
}

bool LoaderPass::between_steps() const {
  return std::ranges::all_of(steps_, [](const TrainStep& step) { return step.between_steps(); });
}

void LoaderPass::run_phase(const Place& at, std::size_t phase, UpdateMetrics& of_updates) {
  TrainStep* const step = state_.is_train ? &steps_[phase] : nullptr;
  // Of the batches of this pass in which the phase takes place.
  const bool last = state_.loader_batch + settings_.phases[phase].every > state_.loader_batches;
  if (step != nullptr) {
    step->begin_batch({.samples = at.epoch.samples(at.index),
                       .batch_size = state_.loader_batch_size,
                       .last = last});
  }
  std::size_t next = 0;  // of the shards that have samples
  for (int local = 0; local < shards_.count(); ++local) {
    const std::int64_t shard = shards_.begin + local;
    const std::int64_t samples = at.epoch.slice(at.index, shard).count;
    const bool has_samples = samples > 0;
    if (has_samples && is_read_) {
      return_to_shard(next);
    } else if (has_samples) {
      read_shard(at, shard);
      done_.emplace_back();
    }
    // After on_batch_start, which may unfreeze parameters.
    if (step != nullptr) step->begin_shard(local, samples);
    if (has_samples) {
      handle_shard(at, phase);
      keep_shard(next++, phase);
    }
    if (step != nullptr) step->end_shard(local);
  }
  is_read_ = true;
  if (step != nullptr && step->due(last)) update(phase, of_updates);
}

// Null if no callback wants the gradients of this update.
TrainStep::Observe LoaderPass::gradient_observer() {
  std::vector<CallbackPtr> observers;
  for (const auto& callback : callbacks_) {
    if (callback->wants_gradients(state_)) observers.push_back(callback);
  }
  if (observers.empty()) return {};
  return [this, observers = std::move(observers)](const SummedGradients& gradients) {
    for (const auto& callback : observers) callback->on_gradients(state_, gradients);
  };
}

void LoaderPass::update(std::size_t phase, UpdateMetrics& of_updates) {
  if (has_phases()) {
    const std::string suffix = "/" + settings_.phases[phase].name;
    UpdateMetrics own;
    steps_[phase].update(own.now, own.late, gradient_observer());
    for (const auto& [name, value] : own.now) of_updates.now[name + suffix] = value;
    for (auto& [name, value] : own.late) {
      of_updates.late.push_back({.name = name + suffix, .value = std::move(value)});
    }
  } else {
    steps_[phase].update(of_updates.now, of_updates.late, gradient_observer());
  }
  for (const auto& name : settings_.phases[phase].optimizers) state_.stepped.push_back(name);
  if (phase == counted_phase_) state_.progress.update_step += 1;
}

void LoaderPass::read_shard(const Place& at, std::int64_t shard) {
  state_.set_shard({.shard = shard});
  {
    Profiler::TimedScope scope(profiler_, Activity::kData);
    state_.batch = feed_.next([&] { return read_batch(at, shard); });
  }
  seed_model(at, 0);
  Profiler::TimedScope scope(profiler_, Activity::kCallbacks);
  notify_all(callbacks_, &Callback::on_batch_start, state_);
  if (state_.batch.begin() == state_.batch.end()) state_.listed_samples = state_.batch.size();
}

// A shard of a batch from the loader, with the random numbers of its place.
Batch LoaderPass::read_batch(const Place& at, std::int64_t shard) {
  seed_draws(key_of(at, shard, Draws::kData));
  const Clock::time_point begin = Clock::now();
  Batch batch = *at.stream.next();
  waited_ += seconds_from(begin);
  return batch;
}

// The shards of the next batch. Callbacks that draw random numbers at the end of this batch do not
// notice.
void LoaderPass::read_ahead(const Place& at) {
  const std::int64_t next = at.index + 1;
  if (!feed_.has_copies() || next >= at.epoch.batches() || state_.loader_end_requested) return;
  Profiler::TimedScope scope(profiler_, Activity::kData);
  const RandomStateScope random;
  const Place ahead{.start = at.start, .epoch = at.epoch, .stream = at.stream, .index = next};
  for (std::int64_t shard = shards_.begin; shard < shards_.begin + shards_.count(); ++shard) {
    if (at.epoch.slice(next, shard).count == 0) continue;
    feed_.read_ahead([&] { return read_batch(ahead, shard); });
  }
}

// For another phase of the batch. It has what earlier phases put into the batch, but its own loss.
void LoaderPass::return_to_shard(std::size_t index) {
  if (!has_one_shard()) state_.set_shard(std::move(done_[index].state));
  state_.batch.erase(settings_.loss_key);
  state_.said.loss.reset();
  state_.said.loss_over = {};
}

void LoaderPass::keep_shard(std::size_t index, std::size_t phase) {
  if (has_phases() && state_.batch.contains(settings_.loss_key)) {
    done_[index].losses.push_back({.phase = phase,
                                   .loss = state_.batch[settings_.loss_key].detach(),
                                   .over = state_.loss_over()});
  }
  // The only shard of a worker stays in the state, because moving it takes time.
  if (!has_one_shard()) done_[index].state = state_.take_shard();
}

void LoaderPass::handle_shard(const Place& at, std::size_t phase) {
  if (phase > 0) seed_model(at, phase);
  state_.phase = settings_.phases[phase].name;
  std::span<const torch::Tensor> others;
  if (state_.is_train) others = steps_[phase].others();
  const WithoutGradients without_others(others);
  {
    Profiler::TimedScope scope(profiler_, Activity::kForward);
    // Inside of the engine's hook, so that an engine of the user's sees every call.
    state_.engine->forward([this] {
      const AutocastScope autocast(state_.precision, state_.engine->device());
      forward();
    });
    if (state_.precision.is_mixed()) widen(state_, settings_.loss_key);
  }
  {
    Profiler::TimedScope scope(profiler_, Activity::kCallbacks);
    notify_all(callbacks_, &Callback::on_forward, state_);
  }
  check_loss();
  if (state_.is_train) backward(steps_[phase]);
  state_.phase.clear();
}

void LoaderPass::forward() {
  if (state_.is_train && side_training_.watches(state_)) {
    side_training_.handle(state_, handle_batch_);
  } else {
    handle_batch_(state_);
  }
}

// Waits for what the device still computes.
Metrics LoaderPass::arrived(UpdateMetrics metrics) {
  for (const auto& [name, value] : metrics.late) {
    metrics.now[name] = value->get().item<double>();
  }
  return std::move(metrics.now);
}

// After the update, calls on_batch_end for each of this worker's shards.
void LoaderPass::finish_shards(UpdateMetrics of_updates) {
  check_late_losses();
  const Metrics metrics = arrived(std::move(of_updates));
  batch_means_.clear();
  for (DoneShard& shard : done_) {
    if (!has_one_shard()) state_.set_shard(std::move(shard.state));
    state_.batch_metrics.insert(metrics.begin(), metrics.end());
    record_batch_metrics(shard.losses);
    Profiler::TimedScope scope(profiler_, Activity::kCallbacks);
    notify_end(callbacks_, &Callback::on_batch_end, state_);
  }
  if (settings_.log_batches) log_batch();
}

// A request of one worker applies to all workers, after the same batch.
void LoaderPass::decide(bool wants_point) {
  constexpr std::uint64_t kEndLoader = 1;
  constexpr std::uint64_t kPoint = 2;
  // While gradients wait for a later batch, a signal waits, too, so that a checkpoint can be
  // written.
  std::uint64_t mine = state_.can_snapshot ? signal_vote() : 0;
  if (state_.loader_end_requested) mine |= kEndLoader;
  if (wants_point) mine |= kPoint;
  const auto votes = [&] {
    Profiler::TimedScope scope(profiler_, Activity::kWait);
    return state_.comm->vote(mine);
  }();
  for (const std::uint64_t vote : votes) {
    if ((vote & kEndLoader) != 0) state_.loader_end_requested = true;
  }
  if ((votes.front() & kPoint) != 0) settings_.take_point();
  obey_signals(votes,
               {.rank = state_.comm->rank(), .replaces_workers = settings_.replaces_workers});
}

DrawKey LoaderPass::key_of(const Place& at, std::int64_t shard, Draws draws) const {
  return {.seed = state_.seed,
          .epoch = state_.progress.epoch,
          .loader = at.start.index,
          .batch = at.index,
          .shard = shard,
          .draws = draws};
}

// For what the model draws in the current shard.
void LoaderPass::seed_model(const Place& at, std::size_t phase) const {
  DrawKey key = key_of(at, state_.shard, Draws::kModel);
  key.phase = static_cast<std::int64_t>(phase);
  seed_draws(key);
}

std::string LoaderPass::place() const {
  // An evaluation is one pass, so it has no epochs.
  const std::string epoch = steps_.empty() ? "" : fmt::format(" epoch {},", state_.progress.epoch);
  return fmt::format("loader '{}',{} batch {}{}", state_.loader, epoch, state_.loader_batch,
                     in_phase());
}

std::string LoaderPass::in_phase() const {
  return state_.phase.empty() ? "" : fmt::format(", phase '{}'", state_.phase);
}

// Called with the loss of a batch that was handled. If terminate_on_nan is set, check_loss() has
// already thrown.
void LoaderPass::warn_of_loss(const std::string& name, double loss) {
  if (std::isfinite(loss) || std::exchange(warned_of_loss_, true)) return;
  warn(fmt::format(
      "{}: '{}' is {}, and the run goes on; usual causes are a learning rate that is too large and "
      "data that are not finite. Set terminate_on_nan to stop there",
      place(), name, loss));
}

void LoaderPass::warn_of_wait(const data::Loader& loader, double seconds) {
  if (!state_.comm->is_primary() || warned_of_wait_ || seconds < settings_.judged_seconds) return;
  // A worker that is pinned sees only its own cores. Else it shares those of the host.
  const int share = process::usable_cores() / state_.comm->topology().local_size;
  const std::string advice = advice_on_wait({.loader = state_.loader,
                                             .seconds = seconds,
                                             .waited = waited_,
                                             .is_stream = loader.iterable() != nullptr,
                                             .prefetch = loader.options().prefetch,
                                             .threads = loader.options().threads,
                                             .cores = std::max(share, torch::get_num_threads())});
  if (advice.empty()) return;
  warned_of_wait_ = true;
  warn(advice);
}

void LoaderPass::check_loss() {
  if (!settings_.terminate_on_nan && !losses_.has_copies()) return;
  if (!state_.batch.contains(settings_.loss_key)) return;
  if (state_.loss_over() == mean_over(0)) return;  // nothing in the batch counts
  const torch::Tensor& loss = state_.batch[settings_.loss_key];
  if (losses_.has_copies() && loss.numel() == 1) {
    losses_.begin(loss);
    if (settings_.terminate_on_nan) late_checks_.push_back({loss.detach(), state_.phase});
  } else if (settings_.terminate_on_nan && !loss.isfinite().all().item<bool>()) {
    fail_on_loss(loss.numel() == 1 ? fmt::to_string(loss.item<double>()) : "not finite");
  }
}

// The losses have arrived on the host while the device did the rest of the batch.
void LoaderPass::check_late_losses() {
  for (const auto& [loss, phase] : late_checks_) {
    const double value = losses_.value_of(loss);
    if (std::isfinite(value)) continue;
    state_.phase = phase;  // for the message
    fail_on_loss(fmt::to_string(value));
  }
}

void LoaderPass::fail_on_loss(const std::string& value) const {
  throw Error("{}: '{}' is {}, expected a finite number (terminate_on_nan is set)", place(),
              settings_.loss_key, value);
}

void LoaderPass::backward(TrainStep& step) {
  if (!state_.batch.contains(settings_.loss_key)) {
    throw ConfigError(
        "loader '{}'{}: nothing to train on: handle_batch left no '{}' in the batch "
        "(batch has: {}); is a criterion missing?",
        state_.loader, in_phase(), settings_.loss_key, fmt::join(state_.batch.keys(), ", "));
  }
  const torch::Tensor& loss = state_.batch[settings_.loss_key];
  if (loss.numel() != 1) {
    throw ConfigError(
        "loader '{}'{}: '{}' has {} elements, expected one number: the mean or the sum over the "
        "batch",
        state_.loader, in_phase(), settings_.loss_key, loss.numel());
  }
  {
    Profiler::TimedScope scope(profiler_, Activity::kBackward);
    step.backward(loss, state_.loss_over(), state_.samples());
  }
  Profiler::TimedScope scope(profiler_, Activity::kCallbacks);
  notify_all(callbacks_, &Callback::on_backward, state_);
}

std::string LoaderPass::loss_name(std::size_t phase) const {
  return settings_.loss_key + "/" + settings_.phases[phase].name;
}

// A loss as it is shown. Nothing if it is not a number, or if nothing in the batch counts.
std::optional<double> LoaderPass::shown_loss(const std::string& name, const torch::Tensor& loss,
                                             const LossOver& over) {
  if (loss.numel() != 1) return std::nullopt;
  if (over == mean_over(0)) {
    // The batch has no loss. If this is so in the whole pass, the loader's loss is NaN.
    record(name, 0, over);
    return std::nullopt;
  }
  const double value = losses_.value_of(loss);
  warn_of_loss(name, value);
  // A sum is shown per sample, because otherwise it would change with the batch size and the
  // shards.
  const bool is_sum = over.kind == LossOver::Kind::kSum;
  return is_sum ? value / static_cast<double>(state_.samples()) : value;
}

// The losses of the phases that took place, and their sum.
void LoaderPass::show_losses(const std::vector<PhaseLoss>& losses) {
  double total = 0;
  for (const auto& [phase, loss, over] : losses) {
    const std::string name = loss_name(phase);
    const auto shown = shown_loss(name, loss, over);
    if (!shown) continue;
    state_.set_metric(name, *shown, over);
    total += *shown;
    state_.batch_metrics[settings_.loss_key] = total;
  }
}

// The loss of a pass is the sum of the mean losses of its phases: each may be a mean over something
// else, and over other batches.
void LoaderPass::add_total_loss(Metrics& metrics) const {
  if (!has_phases()) return;
  std::optional<double> total;
  for (std::size_t phase = 0; phase < settings_.phases.size(); ++phase) {
    const auto mean = metrics.find(loss_name(phase));
    if (mean != metrics.end()) total = total.value_or(0) + mean->second;
  }
  if (total) metrics[settings_.loss_key] = *total;
}

void LoaderPass::record_batch_metrics(const std::vector<PhaseLoss>& losses) {
  const std::string& key = settings_.loss_key;
  const LossOver loss_over = state_.loss_over();
  if (has_phases()) {
    show_losses(losses);
  } else if (state_.batch.contains(key)) {
    const auto shown = shown_loss(key, state_.batch[key], loss_over);
    if (shown) state_.batch_metrics[key] = *shown;
  }
  for (const auto& [name, value] : state_.batch_metrics) {
    const auto said = state_.said.metrics.find(name);
    if (name == key) {
      if (!has_phases()) record(name, value, loss_over);  // else see add_total_loss()
    } else {
      record(name, value, said == state_.said.metrics.end() ? mean_over_samples() : said->second);
    }
  }
  if (settings_.log_batches && settings_.shards == 1) only_shard_ = state_.batch_metrics;
}

// Collective. The metrics of the batch over all its shards, on rank 0. Sums of Moments are exact,
// so they do not depend on which worker has which shard.
Metrics LoaderPass::batch_means() {
  if (settings_.shards == 1) return std::move(only_shard_);
  if (state_.comm->size() > 1) {
    StateDict own;
    for (const auto& [name, mean] : batch_means_) own.set(name, mean.state());
    const auto states = lockstep::gather(own, *state_.comm);
    for (std::size_t rank = 1; rank < states.size(); ++rank) {
      for (const auto& name : states[rank].keys()) {
        batch_means_[name].merge(metric::Moments::from_state(states[rank].get<StateDict>(name)));
      }
    }
  }
  Metrics means;
  for (const auto& [name, mean] : batch_means_) {
    if (mean.samples() > 0) means[name] = mean.mean();
  }
  add_total_loss(means);
  return means;
}

// Collective. One record for each batch, whatever number of workers and shards there is.
void LoaderPass::log_batch() {
  Metrics means = batch_means();
  if (!state_.comm->is_primary()) return;
  Record record{Scope::kBatch, state_.loader, state_.progress, std::move(means)};
  if (state_.is_train) {
    for (const auto& [name, value] : hyper_metrics(state_)) record.metrics[name] = value;
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
  const std::int64_t samples = state_.samples();
  const bool weighted = over.kind == LossOver::Kind::kWeight;
  const metric::WeightedValue update{
      .value = value,
      .weight = weighted ? over.weight : static_cast<double>(samples),
      .samples = samples};
  average->second.update(update);
  if (settings_.log_batches && settings_.shards > 1) batch_means_[name].add(update);
}

Metrics LoaderPass::running_metrics() const {
  Metrics running;
  for (const auto& [name, average] : averages_) running[name] = average.compute().at(name);
  add_total_loss(running);
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
