// Finds training that the run does not know of. handle_batch is called for each shard of a batch,
// on every worker, before the update: a network that it updates itself would have other weights on
// each worker, would not be in checkpoints, and would depend on the number of workers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <torch/types.h>

#include "lockstep/state/named_tensors.h"
#include "lockstep/train/state.h"

namespace lockstep {

class SideTraining {
 public:
  // Whether the current train batch is one of the first two. Later ones are not checked, because
  // that costs time.
  bool watches(const State& state);

  // Calls handle_batch(state). Throws ConfigError, which says what to do, if it
  // - called backward(), which adds to gradients (torch::autograd::grad is allowed),
  // - changed a parameter of the run,
  // - returned a loss that depends on a tensor which requires a gradient, lives longer than a
  // batch,
  //   and belongs neither to a network nor to a criterion of the run.
  void handle(State& state, const std::function<void(State&)>& handle_batch);

 private:
  void begin(const State& state);
  void check_versions(const std::vector<std::uint32_t>& before) const;
  void check_leaves(const State& state);

  std::optional<std::int64_t> first_batch_;
  NamedTensors parameters_;               // of all networks
  std::set<const c10::TensorImpl*> own_;  // these, and those of the criterions
  // The other leaves of the losses of the first batch. They are kept, so that no new tensor gets
  // their address.
  std::map<const c10::TensorImpl*, torch::Tensor> others_;
};

}  // namespace lockstep
