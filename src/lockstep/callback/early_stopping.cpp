#include "lockstep/callback/early_stopping.h"

#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

constexpr const char* kEarlyStopping = "EarlyStoppingCallback";

// What a number of the current shard is a mean over.
double weight_of(const State& state, const std::string& metric) {
  LossOver over = mean_over_samples();
  const auto said = state.said.metrics.find(metric);
  if (said != state.said.metrics.end()) {
    over = said->second;
  } else if (metric == state.loss_key) {
    over = state.loss_over();
  }
  const bool is_weighted = over.kind == LossOver::Kind::kWeight;
  return is_weighted ? over.weight : static_cast<double>(state.samples());
}

}  // namespace

EarlyStoppingCallback::EarlyStoppingCallback(EarlyStoppingCallbackOptions options)
    : options_(std::move(options)) {
  if (options_.patience < 1) {
    throw ConfigError("{}: patience: expected 1 or more, got {}", kEarlyStopping,
                      options_.patience);
  }
  if (!(options_.min_delta >= 0)) {
    throw ConfigError("{}: min_delta: expected 0 or more, got {}", kEarlyStopping,
                      options_.min_delta);
  }
}

std::string EarlyStoppingCallback::agreed_options() const {
  return OptionText()
      .with("patience", options_.patience)
      .with("metric", describe(options_.metric))
      .with("minimize", options_.minimize)
      .with("min_delta", options_.min_delta)
      .with("per", options_.per == optim::Per::kBatch ? "batch" : "epoch")
      .str();
}

void EarlyStoppingCallback::check(const State& state) const {
  if (selection_in(state).key) return;
  throw ConfigError("{}: set its metric, or valid_loader and valid_metric", kEarlyStopping);
}

Selection EarlyStoppingCallback::selection_in(const State& state) const {
  return selection_for(
      state,
      {.metric = options_.metric, .minimize = options_.minimize, .asked_by = kEarlyStopping});
}

void EarlyStoppingCallback::on_run_start(State& state) {
  selection_ = selection_in(state);
  const bool resumed =
      std::exchange(resumed_, false) && (state.progress.epoch > 0 || state.inside_epoch);
  shards_.clear();
  if (!resumed) {
    best_.reset();
    misses_ = 0;
  }
  // If a run that was stopped before is resumed. Inside an epoch, it ends after the epoch.
  if (!state.inside_epoch) stop_if_out_of_patience(state);
}

void EarlyStoppingCallback::on_batch_end(State& state) {
  if (options_.per != optim::Per::kBatch || state.loader != selection_.key->loader) return;
  const auto found = state.batch_metrics.find(selection_.key->metric);
  if (found == state.batch_metrics.end()) return;
  const double weight = weight_of(state, found->first);
  if (weight > 0) shards_[state.shard] = {found->second * weight, weight};
}

void EarlyStoppingCallback::on_step(State& state) {
  if (options_.per != optim::Per::kBatch || state.loader != selection_.key->loader) return;
  const auto score = mean_of_batch(state);
  if (!score || misses_ >= options_.patience) return;
  note(*score);
  if (misses_ < options_.patience) return;
  state.request_loader_end();
  stop_if_out_of_patience(state);
}

// Collective. The mean over all shards of the batch has the same bits for any number of workers.
// Nothing if no shard has the metric.
std::optional<double> EarlyStoppingCallback::mean_of_batch(const State& state) {
  const int shards = static_cast<int>(state.engine->shards());
  const comm::LeafRange own =
      comm::leaves_of({.rank = state.comm->rank(), .size = state.comm->size()}, shards);
  comm::Parts parts{.leaves = shards, .tensors = {}};
  for (int shard = own.begin; shard < own.end; ++shard) {
    const auto [value, weight] = shards_[shard];
    parts.tensors.push_back(torch::tensor({value, weight}, torch::kFloat64));
  }
  shards_.clear();
  const torch::Tensor sum = torch::empty({2}, torch::kFloat64);
  state.comm->sum_parts(parts, sum);
  const double* const total = sum.data_ptr<double>();
  return total[1] > 0 ? std::optional(total[0] / total[1]) : std::nullopt;
}

// A name that no batch has would never stop the run.
void EarlyStoppingCallback::on_loader_end(State& state) {
  if (options_.per != optim::Per::kBatch || state.loader != selection_.key->loader) return;
  if (best_ || misses_ > 0 || state.loader_batch == 0) return;
  std::vector<std::string> names;
  for (const auto& [name, value] : state.loader_metrics) names.push_back(name);
  throw ConfigError("{}: no batch of loader '{}' has a metric '{}', which per = batch needs; {}",
                    kEarlyStopping, state.loader, selection_.key->metric,
                    suggest(selection_.key->metric, names));
}

void EarlyStoppingCallback::on_epoch_end(State& state) {
  if (options_.per == optim::Per::kBatch) return stop_if_out_of_patience(state);
  const auto score = metric_if_run(state, *selection_.key, kEarlyStopping);
  if (!score) return;  // the loader was left out of this epoch
  note(*score);
  stop_if_out_of_patience(state);
}

void EarlyStoppingCallback::note(double score) {
  const bool better =
      best_ ? selection_.is_better(score, *best_) && std::abs(score - *best_) >= options_.min_delta
            : !std::isnan(score);
  if (better) {
    best_ = score;
    misses_ = 0;
  } else {
    ++misses_;
  }
}

void EarlyStoppingCallback::stop_if_out_of_patience(State& state) const {
  if (misses_ < options_.patience) return;
  const MetricKey& key = *selection_.key;
  state.request_stop(fmt::format("{} {} has not been better than {} for {} {}", key.loader,
                                 key.metric, best_ ? format_metric(*best_) : "NaN", misses_,
                                 options_.per == optim::Per::kBatch ? "batches" : "epochs"));
}

StateDict EarlyStoppingCallback::state() const {
  StateDict state{{"misses", misses_}};
  if (best_) state.set("best", *best_);
  return state;
}

void EarlyStoppingCallback::load_state(const StateDict& state) {
  resumed_ = state.size() > 0;  // else on_run_start resets it
  if (!resumed_) return;
  misses_ = state.get<std::int64_t>("misses");
  best_.reset();
  if (state.contains("best")) best_ = state.get<double>("best");
}

}  // namespace lockstep
