// The model's graph for TensorBoard: logdir/tensorboard/_graph_, which `tensorboard --logdir` shows
// in its tab "Graphs".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/callback.h"

namespace lockstep {

struct GraphCallbackOptions {
  // The values of a batch that go into the model, in the order in which forward takes them.
  std::vector<std::string> input_keys = {"features"};
  std::optional<std::string> network = {};  // one of several; default: the only one
};

// Traces the model with the first batch of the run, in evaluation mode: it draws no random numbers,
// and what is trained has the same bits as without it. It costs one forward pass. A resumed run
// does not write the graph again. A model that cannot be traced causes a warning, not an error.
class GraphCallback : public Callback {
 public:
  explicit GraphCallback(GraphCallbackOptions options = {});

  CallbackTraits traits() const override;
  // Throws ConfigError if there is no logdir or no such network.
  void check(const State& state) const override;
  void on_batch_start(State& state) override;

  StateDict state() const override;
  void load_state(const StateDict& state) override;

 private:
  GraphCallbackOptions options_;
  bool is_done_ = false;
};

}  // namespace lockstep
