// What updates the weights. Users write one of the aggregates, with PyTorch's names and defaults,
// or hand over a torch::optim::Optimizer:
//
//   .optimizer = ls::optim::Adam{.lr = 0.02}
//   .optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), 0.1)
//   .optimizer = [](auto parameters) { return std::make_unique<torch::optim::SGD>(parameters, 0.1);
//   }
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "lockstep/optim/flat_parameters.h"
#include "lockstep/state/state_dict.h"

namespace lockstep::optim {

struct StepOptions {
  // The gradients are multiplied by it first: a mean over samples, a clipping by norm.
  double grad_scale = 1.0;
  // Sets the gradients to zero in the same pass; where false, they stay, scaled.
  bool zero_grad = true;
  // The share of the elements that is updated, where others update the rest in the same memory.
  Part part = {};
};

// Updates the parameters it was made for, of which those take part in a step that a backward()
// reached since the last one (FlatParameters). The others stay as they are, with their state: no
// weight decay, no momentum, no step counted, as PyTorch does with a gradient of None.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  virtual std::string name() const = 0;

  // Brings in gradients that were replaced (FlatParameters::collect_grads) and updates.
  virtual void step(const StepOptions& options = {}) = 0;

  // Whether step() can update a share of the elements.
  virtual bool steps_in_parts() const { return false; }

  // Where a torch optimizer has several groups: the first one's. Setting it scales the others so
  // that they keep the ratio they were made with.
  virtual double lr() const = 0;
  virtual void set_lr(double lr) = 0;

  // SGD, RMSprop: momentum; Adam, AdamW: beta1; else nothing, and setting it throws Error.
  virtual std::optional<double> momentum() const = 0;
  virtual void set_momentum(double momentum) = 0;

  // {"name", "step", "steps" {parameter's name: count} of those that missed a step,
  // hyper-parameters, and for each buffer {parameter's name: tensor like it}}: a copy, which later
  // steps leave alone.
  virtual StateDict state() const = 0;

  // Throws ConfigError where state() cannot be saved: a torch optimizer of the user's own need not
  // be able to. Some have nothing to save before their first step. Costs a copy of the state for a
  // torch optimizer, nothing for the others.
  virtual void check_state() const {}

  // Goes on from there with identical bits; hyper-parameters are the state's, as in PyTorch.
  // Throws CheckpointError, and changes nothing, where it is another optimizer's or another
  // model's state.
  virtual void load_state(const StateDict& state) = 0;

  // For ranks that resume together, of which one reads the file. The others load
  // without_tensors(state), which is small, and after that their tensors() get the values of the
  // first one's, by Replica::send(). A torch optimizer has a single tensor that holds everything,
  // and keeps it.
  virtual StateDict without_tensors(const StateDict& state) const { return state; }
  virtual std::vector<torch::Tensor> tensors() const { return {}; }
};

struct Adam {
  double lr = 1e-3;
  double beta1 = 0.9;         // decay of the gradient's running mean
  double beta2 = 0.999;       // decay of the squared gradient's running mean
  double eps = 1e-8;          // added to the denominator
  double weight_decay = 0.0;  // an L2 penalty: added to the gradient
  bool amsgrad = false;       // divides by the largest mean so far
};

struct AdamW {
  double lr = 1e-3;
  double beta1 = 0.9;          // decay of the gradient's running mean
  double beta2 = 0.999;        // decay of the squared gradient's running mean
  double eps = 1e-8;           // added to the denominator
  double weight_decay = 0.01;  // shrinks the weights, apart from the gradient
  bool amsgrad = false;        // divides by the largest mean so far
};

struct SGD {
  double lr = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;     // of the gradient on its way into the momentum
  double weight_decay = 0.0;  // an L2 penalty: added to the gradient
  bool nesterov = false;      // needs momentum, and no dampening
};

struct RMSprop {
  double lr = 0.01;
  double alpha = 0.99;        // decay of the squared gradient's running mean
  double eps = 1e-8;          // added to the denominator
  double weight_decay = 0.0;  // an L2 penalty: added to the gradient
  double momentum = 0.0;
  bool centered = false;  // divides by the variance instead of the mean square
};

struct Adagrad {
  double lr = 0.01;
  double lr_decay = 0.0;                   // step t uses lr / (1 + (t - 1) lr_decay)
  double weight_decay = 0.0;               // an L2 penalty: added to the gradient
  double initial_accumulator_value = 0.0;  // the sum of squares starts from it
  double eps = 1e-10;                      // added to the denominator
};

// What some parameters have for themselves.
struct ParameterSettings {
  std::string names;              // which, as a shell matches files: "*.bias", "0.*"
  std::optional<double> lr = {};  // a scheduler that changes the optimizer's changes it alike
  std::optional<double> weight_decay = {};
  bool optional = false;  // there need not be such parameters
};

// Any of the above, or nothing. Those of Lockstep's can have settings for some parameters:
//
//   .optimizer = {ls::optim::AdamW{.lr = 1e-3}, {{.names = "*.bias", .weight_decay = 0}}}
class OptimizerSpec {
 public:
  using TorchOptimizer = std::shared_ptr<torch::optim::Optimizer>;
  using TorchFactory =
      std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

  OptimizerSpec() = default;
  OptimizerSpec(const Adam& options, std::vector<ParameterSettings> settings = {})
      : choice_(options), settings_(std::move(settings)) {}
  OptimizerSpec(const AdamW& options, std::vector<ParameterSettings> settings = {})
      : choice_(options), settings_(std::move(settings)) {}
  OptimizerSpec(const SGD& options, std::vector<ParameterSettings> settings = {})
      : choice_(options), settings_(std::move(settings)) {}
  OptimizerSpec(const RMSprop& options, std::vector<ParameterSettings> settings = {})
      : choice_(options), settings_(std::move(settings)) {}
  OptimizerSpec(const Adagrad& options, std::vector<ParameterSettings> settings = {})
      : choice_(options), settings_(std::move(settings)) {}

  // One that exists already, made for (some of) the model's parameters.
  template <std::derived_from<torch::optim::Optimizer> T>
  OptimizerSpec(std::shared_ptr<T> optimizer) : choice_(TorchOptimizer(std::move(optimizer))) {}

  // One that is made of the parameters when training starts.
  template <typename F>
  requires std::is_invocable_r_v<std::unique_ptr<torch::optim::Optimizer>, F,
                                 std::vector<torch::Tensor>>
  OptimizerSpec(F factory) : choice_(TorchFactory(std::move(factory))) {}

  bool has_value() const { return choice_.index() != 0; }
  explicit operator bool() const { return has_value(); }

  // The parameters must outlive the optimizer. Throws ConfigError for a value out of its range,
  // for settings of parameters that are not there, for a torch optimizer of other parameters, and
  // where there is nothing to make.
  std::unique_ptr<Optimizer> make(FlatParameters& parameters) const;

  using Choice = std::variant<std::monostate, Adam, AdamW, SGD, RMSprop, Adagrad, TorchOptimizer,
                              TorchFactory>;
  const Choice& choice() const { return choice_; }
  const std::vector<ParameterSettings>& settings() const { return settings_; }

 private:
  Choice choice_;
  std::vector<ParameterSettings> settings_;
};

}  // namespace lockstep::optim
