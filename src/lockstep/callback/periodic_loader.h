// Goes through a loader only in every n-th epoch, for example if validation takes long.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lockstep/train/callback.h"

namespace lockstep {

struct PeriodicLoaderCallbackOptions {
  // For each loader, by name: it takes part in every n-th epoch (for 5 these are 5, 10, 15, …), or
  // in none if n is 0. Loaders that are not named take part in every epoch.
  std::map<std::string, std::int64_t> every = {};
};

// An epoch without the valid_loader has no score: it cannot be the best, early stopping does not
// count it, and a plateau scheduler does not step. Checkpoints are saved nevertheless.
class PeriodicLoaderCallback : public Callback {
 public:
  // Throws ConfigError if no loader is named, or if a number is negative.
  explicit PeriodicLoaderCallback(PeriodicLoaderCallbackOptions options);

  CallbackTraits traits() const override {
    return {.order = Order::kInternal,
            .uses_gradients = false,
            .needs_training = true,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  std::string agreed_options() const override;
  // Throws ConfigError for an unknown loader, if an epoch would have no loader, and if the run is
  // too short for the valid_loader to take part.
  void check(const State& state) const override;
  void on_epoch_start(State& state) override;

 private:
  bool takes_part(const std::string& loader, std::int64_t epoch) const;

  PeriodicLoaderCallbackOptions options_;
};

}  // namespace lockstep
