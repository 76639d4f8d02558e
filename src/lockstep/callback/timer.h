// How long data, model and batch take, as metrics of the loader: `_timer/batch_time`,
// `_timer/data_time` and `_timer/model_time` in seconds, `_timer/_fps` in samples per second. The
// model's time is everything except the data's: forward, backward, optimizer, callbacks.
#pragma once

#include <chrono>

#include "lockstep/metric/additive.h"
#include "lockstep/train/callback.h"

namespace lockstep {

class TimerCallback : public Callback {
 public:
  TimerCallback();

  // After all other callbacks, so that their time does not count as the data's.
  CallbackTraits traits() const override;
  void on_loader_start(State& state) override;
  void on_batch_start(State& state) override;
  void on_step(State& state) override;
  void on_loader_end(State& state) override;

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point batch_end_;  // of the previous batch: then the wait for data begins
  std::optional<Clock::time_point> batch_start_;
  std::int64_t samples_ = 0;  // of the loader, before the current batch
  metric::Additive data_, model_, batch_, rate_;
};

}  // namespace lockstep
