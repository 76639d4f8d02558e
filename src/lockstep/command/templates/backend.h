// The training backend: every part of a run that a runner can decide, with what Lockstep does by
// default written out, to be changed at will. What the config says comes through options().
#pragma once

#include <lockstep/lockstep.h>

namespace @NAMESPACE@ {

class Backend : public lockstep::Runner {
 protected:
  // Where it runs. A config's `engine`, or, with --distributed, a worker on every core.
  std::shared_ptr<lockstep::Engine> get_engine() override {
    if (options().engine != nullptr || !options().ddp) return options().engine;
    // workers and shards stay the options': here would be the place for threads, a timeout, …
    return nullptr;
  }

  // Called once, where workers are forked; in each, where a launcher started them.
  lockstep::data::Loaders get_loaders() override { return options().loaders; }
  lockstep::Model get_model() override { return options().model; }
  lockstep::Criterion get_criterion() override { return options().criterion; }
  lockstep::optim::OptimizerSpec get_optimizer() override { return options().optimizer; }

  // Where the config has no scheduler, the learning rate is lowered when the loss stops falling.
  lockstep::optim::SchedulerSpec get_scheduler() override {
    if (options().scheduler || !options().valid_loader) return options().scheduler;
    return lockstep::optim::ReduceLROnPlateau{.factor = 0.5, .patience = 3};
  }

  // Those of the config, and whatever every run of this project should have.
  lockstep::Callbacks get_callbacks() override { return options().callbacks; }

  // Yours: forward and loss of state.batch.
  void handle_batch(lockstep::State& state) override = 0;

  // What predict_loader yields.
  lockstep::Batch predict_batch(const lockstep::Model& model,
                                const lockstep::Batch& batch) override {
    return {{"logits", model(batch["features"])}};
  }

  std::string loss_key() const override { return "loss"; }
};

}  // namespace @NAMESPACE@
