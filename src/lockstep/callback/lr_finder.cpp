#include "lockstep/callback/lr_finder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/option_text.h"

namespace lockstep {
namespace {

// The factor of the running average. Losses of single batches are noisy.
constexpr double kSmoothing = 0.9;

double sum_of(double mine, comm::Communicator& communicator) {
  double sum = 0;
  for (const std::uint64_t vote : communicator.vote(std::bit_cast<std::uint64_t>(mine))) {
    sum += std::bit_cast<double>(vote);
  }
  return sum;
}

}  // namespace

LRFinderCallback::LRFinderCallback(LRFinderCallbackOptions options) : options_(options) {
  if (!(options_.first_lr > 0 && options_.first_lr < options_.final_lr)) {
    throw ConfigError("LRFinderCallback: expected 0 < first_lr < final_lr, got {} and {}",
                      options_.first_lr, options_.final_lr);
  }
  if (options_.num_steps < 2) {
    throw ConfigError("LRFinderCallback: num_steps: expected 2 or more, got {}",
                      options_.num_steps);
  }
}

std::string LRFinderCallback::agreed_options() const {
  return OptionText()
      .with("first_lr", options_.first_lr)
      .with("final_lr", options_.final_lr)
      .with("num_steps", options_.num_steps)
      .with("scale", options_.scale == LRScale::kLog ? "log" : "linear")
      .str();
}

void LRFinderCallback::check(const State& state) const {
  if (state.optimizers.size() > 1) {
    throw ConfigError(
        "LRFinderCallback: the run has {} optimizers, expected one: it would not be known whose "
        "learning rate changed the loss",
        state.optimizers.size());
  }
  if (state.scheduler != nullptr) {
    throw ConfigError(
        "LRFinderCallback: the run has a scheduler, which sets the learning rate, too");
  }
}

double LRFinderCallback::lr_of(std::int64_t step) const {
  const double part = static_cast<double>(step) / static_cast<double>(options_.num_steps - 1);
  if (options_.scale == LRScale::kLinear) {
    return options_.first_lr + part * (options_.final_lr - options_.first_lr);
  }
  return options_.first_lr * std::pow(options_.final_lr / options_.first_lr, part);
}

void LRFinderCallback::on_run_start(State& state) {
  const bool is_resumed =
      std::exchange(has_loaded_, false) && (state.progress.epoch > 0 || state.inside_epoch);
  sum_ = weight_ = 0;
  if (!is_resumed) {
    before_ = state.model.state();
    points_.clear();
    average_ = 0;
    is_done_ = false;
  }
  if (is_done_) return request_end(state);
  state.optimizer->set_lr(lr_of(static_cast<std::int64_t>(points_.size())));
}

StateDict LRFinderCallback::state() const {
  StateList rates, losses;
  for (const Point& point : points_) {
    rates.emplace_back(point.lr);
    losses.emplace_back(point.loss);
  }
  return {{"lr", std::move(rates)},
          {"loss", std::move(losses)},
          {"average", average_},
          {"is_done", is_done_},
          {"before", before_}};
}

void LRFinderCallback::load_state(const StateDict& state) {
  has_loaded_ = state.size() > 0;  // else on_run_start begins anew
  if (!has_loaded_) return;
  const auto rates = state.get<StateList>("lr");
  const auto losses = state.get<StateList>("loss");
  const auto number = [](const StateValue& value) {
    const double* const number = value.get_if<double>();
    if (number == nullptr) throw CheckpointError("LRFinderCallback: expected lists of numbers");
    return *number;
  };
  if (rates.size() != losses.size()) {
    throw CheckpointError("LRFinderCallback: expected as many rates as losses, got {} and {}",
                          rates.size(), losses.size());
  }
  points_.clear();
  for (std::size_t i = 0; i < rates.size(); ++i) {
    points_.push_back({.lr = number(rates[i]), .loss = number(losses[i])});
  }
  average_ = state.get<double>("average");
  is_done_ = state.get<bool>("is_done");
  before_ = state.get<StateDict>("before");
}

void LRFinderCallback::on_forward(State& state) {
  has_phases_ = !state.phase.empty();
}

// With phases the loss is a sum, and each term may be a mean over something else: then samples are
// counted.
double LRFinderCallback::weight_of_loss(const State& state) const {
  const LossOver over = state.loss_over();
  const bool is_weighted = !has_phases_ && over.kind == LossOver::Kind::kWeight;
  return is_weighted ? over.weight : static_cast<double>(state.samples());
}

void LRFinderCallback::on_batch_end(State& state) {
  const auto loss = state.batch_metrics.find(state.loss_key);
  if (!state.is_train || loss == state.batch_metrics.end()) return;
  const double weight = weight_of_loss(state);
  sum_ += weight * loss->second;
  weight_ += weight;
}

void LRFinderCallback::on_step(State& state) {
  if (is_done_) state.request_loader_end();
  // While gradients wait for a later batch, no step has been made.
  if (!state.is_train || is_done_ || !state.can_snapshot) return;
  const double sum = sum_of(sum_, *state.comm);
  const double weight = sum_of(weight_, *state.comm);
  sum_ = weight_ = 0;
  // Nothing in the step counted, on any worker, so there is no loss. The next step has the same
  // learning rate.
  if (weight == 0) return;
  const double loss = sum / weight;
  const auto step = static_cast<std::int64_t>(points_.size());
  average_ = kSmoothing * average_ + (1 - kSmoothing) * loss;
  const double smooth = average_ / (1 - std::pow(kSmoothing, static_cast<double>(step + 1)));
  points_.push_back({.lr = lr_of(step), .loss = smooth});
  const double smallest = std::ranges::min(points_, {}, &Point::loss).loss;
  // Written so that NaN ends the search, too.
  const bool is_lost = !(smooth <= 4 * smallest || smooth <= 0);
  if (step + 1 == options_.num_steps || is_lost) {
    finish(state);
  } else {
    state.optimizer->set_lr(lr_of(step + 1));
  }
}

// A run that is too short for all rates ends with those that it tried. One worker may have
// requested the end, but all workers restore the model together.
void LRFinderCallback::on_epoch_end(State& state) {
  if (is_done_ || points_.empty()) return;
  const bool is_last = state.progress.epoch >= state.progress.num_epochs || state.stop_reason;
  if (sum_of(is_last ? 1 : 0, *state.comm) > 0) finish(state);
}

void LRFinderCallback::finish(State& state) {
  is_done_ = true;
  state.change_model([&] { state.model.load_state(before_); });
  request_end(state);
  if (!state.logdir || !state.comm->is_primary()) return;
  std::string csv = "step,lr,loss\n";
  for (std::size_t i = 0; i < points_.size(); ++i) {
    csv += fmt::format("{},{},{}\n", i + 1, points_[i].lr, points_[i].loss);
  }
  write_file_atomically(*state.logdir / "lr_finder.csv", csv);
}

void LRFinderCallback::request_end(State& state) const {
  state.request_loader_end();
  const auto found = suggestion();
  state.request_stop(found
                         ? fmt::format("learning rates from {:.3g} to {:.3g} were tried; the loss "
                                       "falls most steeply at {:.3g}",
                                       points_.front().lr, points_.back().lr, *found)
                         : "learning rates were tried; the loss falls at none of them");
}

std::optional<double> LRFinderCallback::suggestion() const {
  std::optional<double> best;
  double steepest = 0;
  // The slope is over the logarithm of the rate. The first steps are left out: they only fill the
  // average.
  const std::size_t begin = std::min<std::size_t>(points_.size(), 5);
  for (std::size_t i = begin; i + 1 < points_.size(); ++i) {
    const double slope = (points_[i + 1].loss - points_[i - 1].loss) /
                         std::log(points_[i + 1].lr / points_[i - 1].lr);
    if (slope < steepest) {
      steepest = slope;
      best = points_[i].lr;
    }
  }
  return best;
}

}  // namespace lockstep
