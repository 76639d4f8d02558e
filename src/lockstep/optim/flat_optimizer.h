// The common part of the fused optimizers: flat state for the flat parameters, the number of steps,
// and the state that checkpoints hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/compute/parallel.h"
#include "lockstep/optim/cuda_updates.h"
#include "lockstep/optim/kernels.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/tensor_updates.h"
#include "lockstep/optim/torch_layout.h"

namespace lockstep::optim {

class FlatOptimizer : public Optimizer {
 public:
  // Sets the learning rate or weight decay of some parameters. If two settings match a parameter,
  // the later one counts. Call it once, before the first step. Throws ConfigError if a pattern
  // matches no parameter, or a value is out of its range.
  void distinguish(const std::vector<ParameterSettings>& settings);

  // The name, all hyper-parameters and the settings of distinguish().
  std::string describe() const final;

  void step(const StepOptions& options) final;
  bool steps_in_parts() const final { return true; }
  StateDict state() const final;
  StateDict view_state() const final;
  void load_state(const StateDict& state) final;
  StateDict without_tensors(const StateDict& state) const final;
  std::vector<torch::Tensor> tensors() const final;

 protected:
  // One value per element. Slots are in the order of the update's state arrays.
  struct Slot {
    std::string name;
    bool in_use = false;
    double initial = 0.0;  // the first value of every element
    std::vector<torch::Tensor> flat =
        {};  // one per buffer; undefined until the buffer is first updated
  };

  FlatOptimizer(FlatParameters& parameters, std::vector<std::string> slot_names);

  // Called by step(), after the steps of the parameters that take part have been counted.
  virtual void update(const GradientUse& gradient) = 0;

  // Numbers and truth values by name.
  virtual StateDict hyper_parameters() const = 0;
  // What PyTorch keeps for a parameter besides the tensors: {"step": 7}. And the number of steps
  // from the state of a parameter that PyTorch saved.
  virtual StateDict torch_counters(std::int64_t steps) const;
  virtual std::int64_t steps_in(const StateDict& parameter) const;
  // Whether PyTorch's optimizer has a state of a parameter before its first step.
  virtual bool has_state_at_once() const { return false; }
  // The first value of a slot's elements, from the options in a state.
  virtual double initial_in(const StateDict& /*state*/, std::size_t /*slot*/) const { return 0.0; }
  // Validates first; if it throws, nothing has changed. `slots` are the slots after loading.
  virtual void set_hyper_parameters(const StateDict& state, const std::vector<Slot>& slots) = 0;

  bool in_use(std::size_t slot) const { return slots_[slot].in_use; }
  void use_slot(std::size_t slot, double initial = 0.0);

  // Throws CheckpointError if a state lacks what the options need.
  void require_in_use(const Slot& slot) const;

  // The values that may differ between parameters.
  struct Rates {
    double lr = 0.0;
    double weight_decay = 0.0;
    std::int64_t step = 1;  // updates of the parameter, including this one
  };

  // For an update that is not element-wise.
  FlatParameters& parameters() { return parameters_; }
  const Part& part() const { return part_; }
  void wait_for_parts() const {
    if (wait_for_parts_) wait_for_parts_();
  }
  Rates rates_of(const Rates& common, std::size_t buffer, std::size_t slice) const;
  UpdateTensors tensors_of(std::size_t buffer) const;

  // Applies the update that `make_update` makes from the rates, for each parameter that takes part
  // in this step. `common` are the rates of parameters without settings.
  template <typename MakeUpdate>
  void apply_to_all(const Rates& common, const MakeUpdate& make_update);

 private:
  // What the optimizer keeps for a parameter in addition to its slots.
  struct Account {
    double lr_scale = 1.0;                    // factor for the optimizer's lr
    std::optional<double> weight_decay = {};  // replaces the optimizer's
    std::int64_t steps = 0;                   // updates in which it took part

    friend bool operator==(const Account&, const Account&) = default;
  };

  // Adjacent parameters that take part in a step and have equal accounts, as a range of elements of
  // a buffer. If this holds for all parameters, it is the whole buffer.
  struct Run {
    ElementRange range;
    Account account;
  };
  const std::vector<Run>& find_runs(std::size_t buffer);

  using TakeTensor = std::function<torch::Tensor(const torch::Tensor& part_of_slot)>;
  StateDict state_with(const TakeTensor& take) const;
  std::map<std::string_view, const Account*> accounts_by_name() const;
  std::vector<ParameterGroup> groups() const;
  std::vector<std::pair<std::string, StateDict>> states_of_parameters(const TakeTensor& take) const;
  // A state as version 0.1.0 saved it: {"name", "step", "steps", hyper-parameters, and for each
  // slot {parameter: tensor}}. load_state() works with this form.
  StateDict by_slot(const StateDict& state) const;
  StateDict own_values(const StateDict& state) const;
  StateDict values_of_python(const TorchState& saved) const;
  StateDict options_of_python(const std::vector<ParameterGroup>& groups) const;
  void count_step();
  // `filled`: the elements that get the slot's initial value. The memory may be shared with other
  // ranks, which fill their own parts or have filled all of it.
  void make_room(Slot& slot, std::size_t buffer, const std::optional<Part>& filled) const;
  StateDict uneven_steps() const;
  using Accounts = std::vector<std::vector<Account>>;  // one per slice, by buffer
  Accounts load_accounts(const StateDict& state) const;
  // A slot of a state. If its tensors are `sent` later, the state contains only their names.
  struct SavedSlot {
    StateDict tensors;  // by parameter
    bool sent = false;
  };
  // Throws CheckpointError if the saved slot does not fit. The result has room for its numbers.
  Slot checked_slot(Slot slot, const SavedSlot& saved, const Accounts& accounts) const;
  // Gives a checked slot the numbers of `tensors`, by parameter; the others are initial ones.
  void fill_slot(const Slot& slot, const StateDict& tensors) const;

  FlatParameters& parameters_;
  std::vector<ParameterSettings> settings_;
  std::vector<Slot> slots_;
  Accounts accounts_;
  std::vector<Run> runs_;                 // of the current buffer
  std::int64_t num_steps_ = 0;            // calls of step()
  Part part_;                             // of the current step
  std::function<void()> wait_for_parts_;  // of the current step
};

// With fewer elements than this per thread, the thread costs more than it saves.
inline constexpr std::int64_t kElementsPerThread = 32768;

template <typename T, typename Update>
void apply_fused(const Update& update, const UpdateTensors& tensors, const ElementRange& range) {
  const kernels::Arrays<T> arrays = arrays_of<T>(tensors);
  compute::for_ranges({.size = range.size(), .grain = kElementsPerThread}, [&](std::int64_t begin,
                                                                               std::int64_t end) {
    kernels::apply(update, arrays, {.begin = range.begin + begin, .end = range.begin + end});
  });
}

// Whether there are kernels of the CPU for these parameters.
inline bool has_fused_updates(const torch::Tensor& values) {
  return values.device().is_cpu() &&
         (values.scalar_type() == torch::kFloat32 || values.scalar_type() == torch::kFloat64);
}

// By kernels if there are any, otherwise by torch's operations.
template <typename Update>
void apply_best(const Update& update, const UpdateTensors& tensors, const ElementRange& range) {
  if (!has_fused_updates(tensors.values)) {
    if (!apply_on_gpu(update, tensors, range)) apply(update, narrowed(tensors, range));
  } else if (tensors.values.scalar_type() == torch::kFloat32) {
    apply_fused<float>(update, tensors, range);
  } else {
    apply_fused<double>(update, tensors, range);
  }
}

template <typename MakeUpdate>
void FlatOptimizer::apply_to_all(const Rates& common, const MakeUpdate& make_update) {
  for (std::size_t i = 0; i < parameters_.buffers().size(); ++i) {
    const std::vector<Run>& runs = find_runs(i);
    if (runs.empty()) continue;
    const UpdateTensors tensors = tensors_of(i);
    const ElementRange ours = range_of(part_, tensors.values.numel());
    for (const auto& [elements, account] : runs) {
      const ElementRange range{.begin = std::max(ours.begin, elements.begin),
                               .end = std::min(ours.end, elements.end)};
      if (range.size() <= 0) continue;
      const auto update =
          make_update(Rates{.lr = common.lr * account.lr_scale,
                            .weight_decay = account.weight_decay.value_or(common.weight_decay),
                            .step = account.steps});
      apply_best(update, tensors, range);
    }
  }
}

}  // namespace lockstep::optim
