// A quick check that everything fits together: a few batches of a few epochs.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/train/callback.h"

namespace lockstep {

struct CheckRunCallbackOptions {
  std::int64_t num_batches = 3;  // of each loader
  std::int64_t num_epochs = 3;
};

class CheckRunCallback : public Callback {
 public:
  explicit CheckRunCallback(CheckRunCallbackOptions options = {});

  CallbackTraits traits() const override {
    return {.uses_gradients = false,
            .needs_training = true,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  std::string agreed_options() const override;
  void on_step(State& state) override;
  void on_epoch_end(State& state) override;

 private:
  CheckRunCallbackOptions options_;
};

}  // namespace lockstep
