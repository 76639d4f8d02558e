#include "lockstep/callback/timer.h"

namespace lockstep {

TimerCallback::TimerCallback()
    : data_({.name = "_timer/data_time"}),
      model_({.name = "_timer/model_time"}),
      batch_({.name = "_timer/batch_time"}),
      rate_({.name = "_timer/_fps"}) {}

std::optional<std::vector<std::string>> TimerCallback::metric_names() const {
  return std::vector<std::string>{"_timer/data_time", "_timer/model_time", "_timer/batch_time",
                                  "_timer/_fps"};
}

void TimerCallback::on_loader_start(State&) {
  for (auto* metric : {&data_, &model_, &batch_, &rate_}) metric->reset();
  batch_end_ = Clock::now();
}

void TimerCallback::on_batch_start(State&) {
  batch_start_ = Clock::now();
}

void TimerCallback::on_batch_end(State& state) {
  const auto now = Clock::now();
  const auto seconds = [](auto from, auto to) {
    return std::chrono::duration<double>(to - from).count();
  };
  const double whole = seconds(batch_end_, now);
  data_.update(seconds(batch_end_, batch_start_), 1);
  model_.update(seconds(batch_start_, now), 1);
  batch_.update(whole, 1);
  rate_.update(whole > 0 ? static_cast<double>(state.batch.size()) / whole : 0, 1);
  batch_end_ = now;
}

void TimerCallback::on_loader_end(State& state) {
  for (const auto* metric : {&data_, &model_, &batch_, &rate_}) {
    const std::string name = metric->names().front();
    state.loader_metrics[name] = metric->compute().at(name);
  }
}

}  // namespace lockstep
