// What the fused optimizers have in common: flat state beside the flat parameters, the count of
// steps, and the state that checkpoints hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/optim/kernels.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/parallel.h"
#include "lockstep/optim/tensor_updates.h"

namespace lockstep::optim {

class FlatOptimizer : public Optimizer {
 public:
  // Gives some parameters a learning rate or weight decay of their own; of two that match a
  // parameter the later one counts. To be called once, before the first step. Throws ConfigError
  // where a pattern matches no parameter, or a value is out of its range.
  void distinguish(const std::vector<ParameterSettings>& settings);

  void step(const StepOptions& options) final;
  bool steps_in_parts() const final { return true; }
  StateDict state() const final;
  void load_state(const StateDict& state) final;

 protected:
  // One value an element, in the order of the update's state arrays.
  struct Slot {
    std::string name;
    std::vector<torch::Tensor> flat;  // one a buffer; empty where it is not in use

    bool in_use() const { return !flat.empty(); }
  };

  FlatOptimizer(FlatParameters& parameters, std::vector<std::string> slot_names);

  // Called by step(), with num_steps() counting this step already.
  virtual void update(const GradientUse& gradient) = 0;

  virtual StateDict hyper_parameters() const = 0;
  // Validates first, and throws without a change. Called with the slots as they will be.
  virtual void set_hyper_parameters(const StateDict& state, const std::vector<Slot>& slots) = 0;

  std::int64_t num_steps() const { return num_steps_; }
  bool in_use(std::size_t slot) const { return slots_[slot].in_use(); }
  void use_slot(std::size_t slot, double initial = 0.0);

  // Throws CheckpointError where a state lacks what the options need.
  void require_in_use(const Slot& slot) const;

  // What may differ from parameter to parameter.
  struct Rates {
    double lr = 0.0;
    double weight_decay = 0.0;
  };

  // Applies what `make_update` makes of the rates of each stretch of parameters; `common` are those
  // of the ones without settings.
  template <typename MakeUpdate>
  void apply_to_all(const Rates& common, const MakeUpdate& make_update);

 private:
  // Parameters side by side with the same settings, as elements of a buffer.
  struct Stretch {
    ElementRange range;
    double lr_scale = 1.0;                    // times the optimizer's
    std::optional<double> weight_decay = {};  // instead of the optimizer's

    bool same_settings(const Stretch& other) const {
      return lr_scale == other.lr_scale && weight_decay == other.weight_decay;
    }
  };

  UpdateTensors tensors_of(std::size_t buffer) const;
  Slot load_slot(const std::string& name, const StateDict& tensors) const;

  FlatParameters& parameters_;
  std::vector<Slot> slots_;
  std::vector<std::vector<Stretch>> stretches_;  // that make up each buffer
  std::int64_t num_steps_ = 0;
  Part part_;  // of the step at work
};

// Below this many elements a thread costs more than it brings.
inline constexpr std::int64_t kElementsPerThread = 32768;

template <typename T, typename Update>
void apply_fused(const Update& update, const UpdateTensors& tensors, const ElementRange& range) {
  kernels::Arrays<T> arrays{.values = tensors.values.data_ptr<T>(),
                            .grads = tensors.grads.data_ptr<T>()};
  for (std::size_t i = 0; i < arrays.state.size(); ++i) {
    if (tensors.state[i].defined()) arrays.state[i] = tensors.state[i].data_ptr<T>();
  }
  for_ranges({.size = range.size(), .grain = kElementsPerThread}, [&](std::int64_t begin,
                                                                      std::int64_t end) {
    kernels::apply(update, arrays, {.begin = range.begin + begin, .end = range.begin + end});
  });
}

template <typename MakeUpdate>
void FlatOptimizer::apply_to_all(const Rates& common, const MakeUpdate& make_update) {
  for (std::size_t i = 0; i < parameters_.buffers().size(); ++i) {
    const UpdateTensors tensors = tensors_of(i);
    const ElementRange ours = range_of(part_, tensors.values.numel());
    const bool cpu = tensors.values.device().is_cpu();
    for (const Stretch& stretch : stretches_[i]) {
      const ElementRange range{.begin = std::max(ours.begin, stretch.range.begin),
                               .end = std::min(ours.end, stretch.range.end)};
      if (range.size() <= 0) continue;
      const auto update =
          make_update(Rates{.lr = common.lr * stretch.lr_scale,
                            .weight_decay = stretch.weight_decay.value_or(common.weight_decay)});
      if (cpu && tensors.values.scalar_type() == torch::kFloat32) {
        apply_fused<float>(update, tensors, range);
      } else if (cpu && tensors.values.scalar_type() == torch::kFloat64) {
        apply_fused<double>(update, tensors, range);
      } else {
        apply(update, narrowed(tensors, range));
      }
    }
  }
}

}  // namespace lockstep::optim
