#include "lockstep/callback/checkpoint.h"

#include <utility>

#include "lockstep/train/checkpointer.h"

namespace lockstep {

CheckpointCallback::CheckpointCallback(CheckpointCallbackOptions options)
    : options_(std::move(options)) {
  check_checkpoints(options_);
}

void CheckpointCallback::on_run_start(State& state) {
  series_ = &state.checkpointer->open(options_, std::exchange(remembered_, std::nullopt));
}

// The run may have failed before on_run_start reached this callback.
void CheckpointCallback::on_exception(State&) {
  if (series_ != nullptr) series_->after_exception();
}

StateDict CheckpointCallback::state() const {
  return series_ != nullptr ? series_->state() : StateDict();
}

}  // namespace lockstep
