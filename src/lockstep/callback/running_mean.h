// Means over the last batches, which follow a run faster than means over a whole epoch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/metric/running_mean.h"
#include "lockstep/train/callback.h"

namespace lockstep {

struct RunningMeanCallbackOptions {
  std::vector<std::string> metrics = {"loss"};  // metrics of batches: the loss, or your own
  std::int64_t window = 50;                     // over how many global batches
  bool train_only = true;                       // not in passes that only evaluate
};

// `running_loss`, …: the mean over the last `window` batches of a pass. A progress bar shows it; at
// the end of the pass it is a metric of the loader. It begins anew with every pass, and a resumed
// run goes on with it.
class RunningMeanCallback : public Callback {
 public:
  explicit RunningMeanCallback(RunningMeanCallbackOptions options = {});

  CallbackTraits traits() const override;
  std::string agreed_options() const override;
  std::optional<Better> better(std::string_view metric) const override;
  Metrics running_metrics() const override;
  void check(const State& state) const override;
  void on_loader_start(State& state) override;
  void on_batch_end(State& state) override;
  void on_loader_end(State& state) override;
  void gather(comm::Communicator& communicator) override;
  StateDict state() const override;
  void load_state(const StateDict& state) override;

 private:
  bool takes_part(const State& state) const { return state.is_train || !options_.train_only; }

  RunningMeanCallbackOptions options_;
  std::vector<metric::RunningMean> means_;  // in the order of options_.metrics
  bool is_active_ = false;                  // in a pass that it observes
};

}  // namespace lockstep
