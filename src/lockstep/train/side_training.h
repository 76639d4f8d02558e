// Finds training that the run does not know of. handle_batch is called for each shard of a batch,
// on every worker, before the update: a network that it updates itself would have other weights on
// each worker, would not be in checkpoints, and would depend on the number of workers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/state/named_tensors.h"
#include "lockstep/train/state.h"

namespace lockstep {

// Counts train batches, by progress.batch_step. Only the first two are watched, because watching
// costs time.
class FirstBatches {
 public:
  // Whether this batch, or the one that was asked for last, is one of the first two.
  bool includes(std::int64_t batch_step);
  bool is_first() const { return count_ == 1; }

 private:
  std::int64_t last_ = -1;
  std::int64_t count_ = 0;
};

class SideTraining {
 public:
  // Whether the current train batch is one of the first two of the current phase.
  bool watches(const State& state);

  // Calls handle_batch(state). Throws ConfigError, which says what to do, if it
  // - called backward(), which adds to gradients (torch::autograd::grad is allowed),
  // - changed a parameter of the run,
  // - returned a loss that depends on a tensor which requires a gradient, lives longer than a
  //   batch, and belongs neither to a network nor to a criterion of the run.
  void handle(State& state, const std::function<void(State&)>& handle_batch);

 private:
  struct Watched {
    FirstBatches batches = {};
    // The other leaves of the losses of the first batch. They are kept, so that no new tensor gets
    // their address.
    std::map<const c10::TensorImpl*, torch::Tensor> others = {};
  };

  void begin(const State& state);
  void check_leaves(const State& state);

  std::map<std::string, Watched, std::less<>> phases_;
  NamedTensors parameters_;               // of all networks
  std::set<const c10::TensorImpl*> own_;  // these, and those of the criterions
};

// The same for one handler of a runner that is called in train batches (on_step, …).
class HandlerWatch {
 public:
  // `handler` is its name, a literal.
  explicit HandlerWatch(const char* handler) : handler_(handler) {}

  // Calls function(). In the first two train batches of each phase, throws ConfigError if it called
  // backward(), or changed a parameter of the run outside of state.change_model().
  template <typename Function>
  void call(State& state, const Function& function) {
    if (watches(state)) {
      call_watched(state, function);
    } else {
      function();
    }
  }

 private:
  bool watches(const State& state);
  void call_watched(State& state, const std::function<void()>& function) const;

  const char* handler_;
  std::vector<std::pair<std::string, FirstBatches>> phases_;  // few, and looked for in every batch
};

}  // namespace lockstep
