// Weights that a run uses instead of those that it trains: their moving average (EmaCallback) or
// their mean (SwaCallback). Loaders that are not trained on are evaluated with the average, a
// checkpoint has it as the model's weights, and the run ends with it. Training goes on with the
// trained weights. docs/decisions/averaged-weights.md has the reasons.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/state/named_tensors.h"
#include "lockstep/state/state_dict.h"

namespace lockstep {

class Model;
struct RunState;

// The loop owns one, which callbacks reach by state.averaged. Every rank has one, but only rank 0
// has the numbers: the other ranks know whether there are any.
class AveragedWeights {
 public:
  // The request of a callback.
  struct Request {
    std::string asked_by;                    // its name, for messages
    std::vector<std::string> networks = {};  // empty: all that an optimizer trains
    // After the last train loader of an epoch, a pass over the train data computes the statistics
    // of batch norm for the average.
    bool remake_batch_norm = false;
  };

  // `run` must outlive it.
  explicit AveragedWeights(const RunState& run) : run_(run) {}
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

  // For Callback::check. Throws ConfigError if there is no such network.
  static void check(const Request& request, const RunState& run);

  // Collective, for on_run_start. A resumed run goes on with the average of the checkpoint. Throws
  // ConfigError if another callback averages, too, and as check().
  void open(const Request& request);

  // Called on every rank, for on_step and on_loader_end: average += weight (trained - average). The
  // first call copies the trained weights. It costs one pass over the weights on rank 0. Numbers
  // that are no floating-point numbers are copied. Throws Error while the average is in use.
  void add(double weight);

  // Whether there is an average. It is the same on all ranks.
  bool exists() const { return exists_; }

  // Collective. The model gets the average, and this object keeps the trained weights; then the
  // other way round. Nothing happens if there is no average.
  void use();
  void release();
  bool is_used() const { return is_used_; }

  // Whether the average has changed, and its statistics of batch norm must be computed.
  bool needs_batch_norm() const { return needs_batch_norm_; }
  // Those of the averaged networks: the pass must leave the buffers of the others alone.
  const NamedTensors& buffers() const { return buffers_; }
  // They were computed, if there is a batch norm at all.
  void note_batch_norm(bool has_batch_norm);

  // On rank 0, without copying: the model's weights, with the average where there is one; and the
  // trained weights of which the average is made. The second is empty if there is no average.
  StateDict for_use() const;
  StateDict trained() const;

  // Before open(), on rank 0: the average of a checkpoint, and what needs_batch_norm() was there.
  void load(StateDict averaged, bool needs_batch_norm = false) {
    loaded_ = std::move(averaged);
    loaded_needs_batch_norm_ = needs_batch_norm;
  }

 private:
  NamedTensors chosen(const Request& request, NamedTensors (Model::*tensors)() const) const;
  bool take_loaded();
  void swap();

  const RunState& run_;
  std::string owner_;                   // the callback that called open(); empty: none did
  std::vector<torch::Tensor> tensors_;  // the model's own, each once
  std::vector<torch::Tensor> values_;  // on rank 0: the average, or the trained weights if is_used_
  // The names of tensors_, in the model's order, with their indices. A tied weight has several.
  std::vector<std::pair<std::string, std::size_t>> names_;
  std::unordered_map<std::string, std::size_t> index_;  // the same, to look up a name
  NamedTensors buffers_;
  StateDict loaded_;
  bool loaded_needs_batch_norm_ = false;
  bool remakes_batch_norm_ = false;
  bool needs_batch_norm_ = false;
  bool exists_ = false;
  bool is_used_ = false;
};

// On rank 0, without copying: the weights with which the run would end now.
StateDict weights_for_use(const RunState& run);

}  // namespace lockstep
