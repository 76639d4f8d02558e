#include "lockstep/callback/check_run.h"

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"

namespace lockstep {

CheckRunCallback::CheckRunCallback(CheckRunCallbackOptions options) : options_(options) {
  if (options_.num_batches < 1 || options_.num_epochs < 1) {
    throw ConfigError("CheckRunCallback: expected 1 or more batches and epochs, got {} and {}",
                      options_.num_batches, options_.num_epochs);
  }
}

std::string CheckRunCallback::agreed_options() const {
  return OptionText()
      .with("num_batches", options_.num_batches)
      .with("num_epochs", options_.num_epochs)
      .str();
}

void CheckRunCallback::on_step(State& state) {
  if (state.loader_batch >= options_.num_batches) state.request_loader_end();
}

void CheckRunCallback::on_epoch_end(State& state) {
  if (state.progress.epoch >= options_.num_epochs) {
    state.request_stop(fmt::format("a check of {} epochs of {} batches", options_.num_epochs,
                                   options_.num_batches));
  }
}

}  // namespace lockstep
