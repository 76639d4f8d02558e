#include "lockstep/callback/checkpoint.h"

#include <utility>

#include "lockstep/base/option_text.h"
#include "lockstep/train/checkpointer.h"

namespace lockstep {
namespace {

const char* mode_name(CheckpointMode mode) {
  if (mode == CheckpointMode::kNone) return "none";
  return mode == CheckpointMode::kFull ? "full" : "model";
}

}  // namespace

CheckpointCallback::CheckpointCallback(CheckpointCallbackOptions options)
    : options_(std::move(options)) {
  check_checkpoints(options_);
}

std::string CheckpointCallback::agreed_options() const {
  return OptionText()
      .with("metric", describe(options_.metric))
      .with("minimize", options_.minimize)
      .with("min_delta", options_.min_delta)
      .with("save_n_best", options_.save_n_best)
      .with("keep_all", options_.keep_all)
      .with("save_every_epochs", options_.save_every_epochs)
      .with("save_every_batches", options_.save_every_batches)
      .with("save_every_steps", options_.save_every_steps)
      .with("filename", options_.filename.value_or("default"))
      .with("mode", mode_name(options_.mode))
      .str();
}

void CheckpointCallback::on_run_start(State& state) {
  series_ =
      state.checkpointer->open(options_, std::exchange(remembered_, std::nullopt)).weak_from_this();
}

// The run may have failed before on_run_start reached this callback.
void CheckpointCallback::on_exception(State&) {
  if (const auto series = series_.lock()) series->after_exception();
}

void CheckpointCallback::load_state(const StateDict& state) {
  remembered_.reset();
  if (state.size() > 0) remembered_ = state;
}

StateDict CheckpointCallback::state() const {
  const auto series = series_.lock();
  return series != nullptr ? series->state() : StateDict();
}

}  // namespace lockstep
