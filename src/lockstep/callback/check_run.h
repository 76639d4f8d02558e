// A quick check that everything fits together: a few batches of a few epochs.
#pragma once

#include <cstdint>

#include "lockstep/train/callback.h"

namespace lockstep {

struct CheckRunCallbackOptions {
  std::int64_t num_batches = 3;  // of each loader
  std::int64_t num_epochs = 3;
};

class CheckRunCallback : public Callback {
 public:
  bool uses_gradients() const override { return false; }
  explicit CheckRunCallback(CheckRunCallbackOptions options = {});

  bool needs_training() const override { return true; }
  std::optional<std::vector<std::string>> metric_names() const override {
    return std::vector<std::string>();
  }
  void on_step(State& state) override;
  void on_epoch_end(State& state) override;

 private:
  CheckRunCallbackOptions options_;
};

}  // namespace lockstep
