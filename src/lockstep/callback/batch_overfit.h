// Trains on a few batches again and again: a model that cannot learn even these is broken.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include "lockstep/data/loaders.h"
#include "lockstep/train/callback.h"

namespace lockstep {

struct BatchOverfitCallbackOptions {
  // For each loader, by name: how many of its first batches, or which share of them (0 to 1).
  // Loaders that are not named use one batch.
  std::map<std::string, std::variant<std::int64_t, double>> batches = {};
};

// Each loader repeats its first batches (in the order of its first epoch) until it has its full
// length. The loaders are exchanged at the start of each epoch and restored at its end.
class BatchOverfitCallback : public Callback {
 public:
  explicit BatchOverfitCallback(BatchOverfitCallbackOptions options = {});

  CallbackTraits traits() const override {
    return {.order = Order::kInternal,
            .uses_gradients = false,
            .needs_training = true,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  std::string agreed_options() const override;
  void check(const State& state) const override;
  void on_epoch_start(State& state) override;
  void on_epoch_end(State& state) override;

 private:
  // Of the `batches` of an epoch.
  std::int64_t kept_batches(const std::string& name, std::int64_t batches) const;

  BatchOverfitCallbackOptions options_;
  data::Loaders originals_;
};

}  // namespace lockstep
