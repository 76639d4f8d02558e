// A pass over train data that computes the statistics of batch norm for the weights that the model
// has now, as torch.optim.swa_utils.update_bn does. Nothing else of the model changes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/data/batch_window.h"
#include "lockstep/state/named_tensors.h"
#include "lockstep/train/callback.h"
#include "lockstep/train/model.h"
#include "lockstep/train/phase.h"
#include "lockstep/train/state.h"

namespace lockstep {

struct BatchNormPass {
  State& state;  // state.comm must be set; state is as before afterwards
  // on_batch_start of those that may change a batch is called, and no other hook.
  const std::vector<CallbackPtr>& callbacks;
  const std::function<void(State&)>& handle_batch;
  const std::vector<Phase>& phases;   // each has a forward pass for every batch
  NamedTensors buffers = {};          // of the networks whose statistics are computed
  std::vector<Model> untrained = {};  // networks that stay in evaluation mode
  Model::Modes modes = {};            // of the modules in training; empty: all are trained
  std::int64_t shards = 1;            // parts of every batch, over all workers

  struct Source {
    std::string name;                 // of the loader
    std::int64_t index = 0;           // of the loader in the epoch
    data::WindowOptions window = {};  // its batches; the run's seed is used
  };
  std::vector<Source> loaders = {};
};

// Collective. The modules have the modes of the training, also afterwards, and no gradients are
// recorded: a batch norm that a callback keeps in evaluation mode keeps its statistics. Samples and
// random numbers are those of the training in the same epoch. Every shard of a batch counts as a
// batch, so the statistics are the same for any number of workers. Returns whether a batch norm has
// running statistics among pass.buffers, or may have them later: some modules that could be trained
// are in evaluation mode.
bool remake_batch_norm(const BatchNormPass& pass);

}  // namespace lockstep
