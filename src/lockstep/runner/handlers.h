// The handlers of a runner (Runner::on_run_start and the others) as callbacks of the run.
#pragma once

#include "lockstep/train/callback.h"
#include "lockstep/train/side_training.h"

namespace lockstep {

class Runner;

// Calls one half of the runner's handlers. A callback has one place in the order, and the handlers
// have two: before the callbacks at the start of things, after them at the end.
class RunnerHandlers : public Callback {
 public:
  enum class Half { kStart, kEnd };
  // The runner must outlive the callback.
  RunnerHandlers(Runner& runner, Half half) : runner_(runner), half_(half) {}

  CallbackTraits traits() const override;
  void on_run_start(State& state) override;
  void on_epoch_start(State& state) override;
  void on_loader_start(State& state) override;
  void on_batch_start(State& state) override;
  void on_outputs(State& state) override;
  void on_forward(State& state) override;
  void on_backward(State& state) override;
  void on_batch_end(State& state) override;
  void on_step(State& state) override;
  void on_loader_end(State& state) override;
  void on_epoch_end(State& state) override;
  void on_checkpoint(State& state) override;
  void on_run_end(State& state) override;
  void on_exception(State& state) override;

 private:
  bool is_start() const { return half_ == Half::kStart; }

  Runner& runner_;
  Half half_;
  HandlerWatch batch_start_{"on_batch_start"};
  HandlerWatch outputs_{"on_outputs"};
  HandlerWatch forward_{"on_forward"};
  HandlerWatch backward_{"on_backward"};
  HandlerWatch batch_end_{"on_batch_end"};
  HandlerWatch step_{"on_step"};
};

// Adds both parts at the end of the list: the places of the user's callbacks in it stay.
void add_handlers(Callbacks& callbacks, Runner& runner);

}  // namespace lockstep
