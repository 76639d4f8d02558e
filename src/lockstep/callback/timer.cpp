#include "lockstep/callback/timer.h"

#include <utility>

namespace lockstep {

TimerCallback::TimerCallback()
    : data_({.name = "_timer/data_time"}),
      model_({.name = "_timer/model_time"}),
      batch_({.name = "_timer/batch_time"}),
      rate_({.name = "_timer/_fps"}) {}

CallbackTraits TimerCallback::traits() const {
  std::vector<std::string> names;
  for (const auto* metric : {&data_, &model_, &batch_, &rate_}) {
    names.push_back(metric->names().front());
  }
  return {.order = Order::kExternalExtra,
          .ranks = Ranks::kPrimary,
          .uses_gradients = false,
          .changes_batch = false,
          .metric_names = names};
}

void TimerCallback::on_loader_start(State& state) {
  for (auto* metric : {&data_, &model_, &batch_, &rate_}) metric->reset();
  batch_end_ = Clock::now();
  batch_start_.reset();
  samples_ = state.loader_samples;
}

// Only the first of this worker's shards counts.
void TimerCallback::on_batch_start(State&) {
  if (!batch_start_) batch_start_ = Clock::now();
}

void TimerCallback::on_step(State& state) {
  const auto now = Clock::now();
  const auto start = std::exchange(batch_start_, std::nullopt).value_or(now);
  const std::int64_t samples = state.loader_samples - std::exchange(samples_, state.loader_samples);
  const auto seconds = [](auto from, auto to) {
    return std::chrono::duration<double>(to - from).count();
  };
  const double whole = seconds(batch_end_, now);
  data_.update(seconds(batch_end_, start), 1);
  model_.update(seconds(start, now), 1);
  batch_.update(whole, 1);
  rate_.update(whole > 0 ? static_cast<double>(samples) / whole : 0, 1);
  batch_end_ = now;
}

void TimerCallback::on_loader_end(State& state) {
  for (const auto* metric : {&data_, &model_, &batch_, &rate_}) {
    const std::string name = metric->names().front();
    state.loader_metrics[name] = metric->compute().at(name);
  }
}

}  // namespace lockstep
