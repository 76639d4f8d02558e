// Optimizers, which update the weights. Users write one of the aggregates, with PyTorch's names and
// defaults, pass a torch::optim::Optimizer, or derive a class of their own from Optimizer:
//
//   .optimizer = ls::optim::Adam{.lr = 0.02}
//   .optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), 0.1)
//   .optimizer = [](auto parameters) {
//     return std::make_unique<torch::optim::SGD>(parameters, 0.1);
//   }
//   .optimizer = [](ls::optim::FlatParameters& parameters) {
//     return std::make_unique<MyOptimizer>(parameters);
//   }
//
// docs/guide/own-scheduler.md has complete programs.
#pragma once

#include <concepts>
#include <functional>
#include <limits>
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
  // The gradients are multiplied by it first, for a mean over samples or for clipping by norm.
  double grad_scale = 1.0;
  // Sets the gradients to zero in the same pass. If false, they are kept, scaled.
  bool zero_grad = true;
  // The part of the elements to update. Other ranks update the rest in the same memory.
  Part part = {};
  // Waits until the ranks that update the other parts have come here, too. An optimizer that needs
  // sums over whole parameters calls it between its passes. Nothing: there are no other parts.
  std::function<void()> wait_for_parts = {};
};

// The values that schedulers change: learning rates and momenta of each group of parameters.
struct OptimizerPace {
  std::vector<double> lrs = {};
  // To the rate of the first group, when the run began. None if the optimizer does not keep them.
  std::vector<double> lr_ratios = {};
  std::vector<double> momenta = {};  // none if the optimizer has no momentum

  bool operator==(const OptimizerPace& other) const = default;
};

// Updates the parameters for which it was made. Those that a backward() reached since the last step
// take part in a step (FlatParameters). The others stay unchanged, with their state: no weight
// decay, no momentum, no step counted, as PyTorch does with a gradient of None.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  virtual std::string name() const = 0;

  // Copies replaced gradients into the flat ones (FlatParameters::collect_grads) and updates the
  // parameters.
  virtual void step(const StepOptions& options = {}) = 0;

  // Whether step() can update a part of the elements.
  virtual bool steps_in_parts() const { return false; }

  // If a torch optimizer has several groups, this is the learning rate of the first one. Setting it
  // scales the rates of the others so that their ratios stay the same.
  virtual double lr() const = 0;
  virtual void set_lr(double lr) = 0;

  // SGD, RMSprop: momentum; those with a beta1: beta1; others have none, and setting it throws
  // Error.
  virtual std::optional<double> momentum() const { return std::nullopt; }
  virtual void set_momentum(double momentum);

  // For a run that begins anew after a failure. A torch optimizer that the caller made still has
  // the rates of the failed attempt. set_pace() gives it those that pace() returned in the first
  // one. By default they use lr and momentum. Override both if your class keeps several of them in
  // an object that outlives it.
  virtual OptimizerPace pace() const;
  virtual void set_pace(const OptimizerPace& pace);

  // The options on which all ranks of a run must agree, as text; for example
  // "SGD(lr=0.1, momentum=0.9, …)". It is compared when the optimizers of all ranks are made. By
  // default it has the name, lr and momentum: override it if your class has other options.
  virtual std::string describe() const;

  // Everything that the next step depends on besides the parameters and their gradients, the
  // learning rate included. It is a copy, which later steps do not change. Lockstep's optimizers
  // have PyTorch's layout, {"state", "param_groups"} (optim/torch_layout.h), and besides it
  // {"name", "step", "steps" {parameter's name: count} of the parameters that missed a step,
  // "slots" and hyper-parameters}.
  virtual StateDict state() const = 0;

  // The same tree for a caller that copies it at once (state/copy.h): its tensors may be the
  // optimizer's own, which the next step changes. If you do not override it, everything is copied
  // twice. A torch optimizer does not, because torch serialises its state: a checkpoint then stalls
  // training several times as long.
  virtual StateDict view_state() const { return state(); }

  // Throws ConfigError if state() cannot be saved, which is possible for a user's own torch
  // optimizer. Some have nothing to save before their first step. Costs a copy of the state for a
  // torch optimizer, nothing for the others.
  virtual void check_state() const {}

  // Continues from a state with identical bits; hyper-parameters are taken from the state, as in
  // PyTorch. Throws CheckpointError, and changes nothing, if it is the state of another optimizer
  // or model. Lockstep's optimizers also load what state_dict() of the same optimizer in Python
  // returned.
  virtual void load_state(const StateDict& state) = 0;

  // For ranks that resume together, when only one of them reads the file. The others load
  // without_tensors(state), which is small. Then Replicas::send() copies the values of the first
  // one's tensors() into theirs. A torch optimizer has a single tensor that holds everything; it
  // stays in the state.
  virtual StateDict without_tensors(const StateDict& state) const { return state; }
  virtual std::vector<torch::Tensor> tensors() const { return {}; }
};

// Does all of Optimizer::step() except the arithmetic, for an optimizer of your own: calls `update`
// for each parameter that takes part in the step, with its scaled gradient. `update` changes
// slice.parameter in place; no graph is recorded. A state of the optimizer is best kept by
// slice.name: parameters may be frozen and unfrozen during a run.
using UpdateParameter =
    std::function<void(const FlatParameters::Slice& slice, const torch::Tensor& gradient)>;
void update_each(FlatParameters& parameters, const StepOptions& options,
                 const UpdateParameter& update);

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
  double weight_decay = 0.01;  // shrinks the weights, independently of the gradient
  bool amsgrad = false;        // divides by the largest mean so far
};

struct SGD {
  double lr = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;     // of the gradient that is added to the momentum
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

// Adam that begins with steps of plain momentum, until the variance of its steps is known (Liu et
// al. 2019).
struct RAdam {
  double lr = 1e-3;
  double beta1 = 0.9;         // decay of the gradient's running mean
  double beta2 = 0.999;       // decay of the squared gradient's running mean
  double eps = 1e-8;          // added to the denominator
  double weight_decay = 0.0;  // an L2 penalty: added to the gradient
};

// Adam with Nesterov's momentum (Dozat 2016). The numbers are those of PyTorch 2; PyTorch 1.13
// counts one factor of the momentum twice. If beta1 changes during a run, past steps count with the
// present one.
struct NAdam {
  double lr = 2e-3;
  double beta1 = 0.9;            // decay of the gradient's running mean
  double beta2 = 0.999;          // decay of the squared gradient's running mean
  double eps = 1e-8;             // added to the denominator
  double weight_decay = 0.0;     // an L2 penalty: added to the gradient
  double momentum_decay = 4e-3;  // how fast the momentum rises to beta1
};

// Adam that divides by the largest gradient, which decays, instead of a mean.
struct Adamax {
  double lr = 2e-3;
  double beta1 = 0.9;         // decay of the gradient's running mean
  double beta2 = 0.999;       // decay of the largest gradient
  double eps = 1e-8;          // added to the gradient's size
  double weight_decay = 0.0;  // an L2 penalty: added to the gradient
};

// Steps as large as the previous ones, in units of the gradient (Zeiler 2012).
struct Adadelta {
  double lr = 1.0;
  double rho = 0.9;           // decay of both running means
  double eps = 1e-6;          // added to both means
  double weight_decay = 0.0;  // an L2 penalty: added to the gradient
};

// Steps of the same size for every element (Chen et al. 2023). It needs a learning rate 3 to 10
// times smaller than AdamW's, and a weight decay that is larger by as much.
struct Lion {
  double lr = 1e-4;
  double beta1 = 0.9;         // weight of the momentum in a step
  double beta2 = 0.99;        // decay of the momentum
  double weight_decay = 0.0;  // shrinks the weights, independently of the gradient
};

// Adam for large batches: the step of each parameter is as long as the parameter, times lr (You et
// al. 2020). With bias_correction = false and max_weight_norm = 10 it is Catalyst's.
struct Lamb {
  double lr = 1e-3;
  double beta1 = 0.9;           // decay of the gradient's running mean
  double beta2 = 0.999;         // decay of the squared gradient's running mean
  double eps = 1e-6;            // added to the denominator
  double weight_decay = 0.0;    // added to the step, before it is scaled
  bool bias_correction = true;  // of the running means, which begin with zero
  double max_weight_norm = std::numeric_limits<double>::infinity();  // larger norms count as this
};

class OptimizerSpec;

// Another optimizer takes `k` steps; then the weights go back, and only the part alpha of the way
// remains (Zhang et al. 2019):
//
//   .optimizer = ls::optim::Lookahead{.optimizer = ls::optim::RAdam{.lr = 1e-3}}
struct Lookahead;

// Settings for some of the parameters. If several fit a parameter, each field has the value of the
// last one that gives it.
struct ParameterSettings {
  std::string names;              // a pattern as for files in a shell: "*.bias", "0.*"
  std::optional<double> lr = {};  // a scheduler scales it together with the optimizer's
  std::optional<double> weight_decay = {};
  bool optional = false;                 // no error if no parameter matches
  std::optional<double> lr_factor = {};  // instead of lr: the optimizer's, times this
  // Whether the run leaves them as they are (FreezeCallback does the same for some epochs): {.names
  // = "*", .frozen = true}, {.names = "fc.*", .frozen = false} trains the last layer only.
  std::optional<bool> frozen = {};
};

template <typename F>
concept MakesTorchOptimizer =
    std::is_invocable_r_v<std::unique_ptr<torch::optim::Optimizer>, F, std::vector<torch::Tensor>>;

// A function with a parameter of type `auto` makes a torch optimizer: trying such a function with
// FlatParameters could be an error inside of it.
template <typename F>
concept MakesOptimizer = !MakesTorchOptimizer<F> &&
                         std::is_invocable_r_v<std::unique_ptr<Optimizer>, F, FlatParameters&>;

// Any of the above, or nothing. Lockstep's optimizers can have settings for some parameters:
//
//   .optimizer = {ls::optim::AdamW{.lr = 1e-3}, {{.names = "*.bias", .weight_decay = 0}}}
class OptimizerSpec {
 public:
  using TorchOptimizer = std::shared_ptr<torch::optim::Optimizer>;
  using TorchFactory =
      std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;
  using Factory = std::function<std::unique_ptr<Optimizer>(FlatParameters&)>;

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
  OptimizerSpec(const RAdam& options, std::vector<ParameterSettings> settings = {})
      : choice_(options), settings_(std::move(settings)) {}
  OptimizerSpec(const NAdam& options, std::vector<ParameterSettings> settings = {})
      : choice_(options), settings_(std::move(settings)) {}
  OptimizerSpec(const Adamax& options, std::vector<ParameterSettings> settings = {})
      : choice_(options), settings_(std::move(settings)) {}
  OptimizerSpec(const Adadelta& options, std::vector<ParameterSettings> settings = {})
      : choice_(options), settings_(std::move(settings)) {}
  OptimizerSpec(const Lion& options, std::vector<ParameterSettings> settings = {})
      : choice_(options), settings_(std::move(settings)) {}
  OptimizerSpec(const Lamb& options, std::vector<ParameterSettings> settings = {})
      : choice_(options), settings_(std::move(settings)) {}
  // The settings are those of the optimizer in it.
  OptimizerSpec(const Lookahead& options);

  // An optimizer that exists already and was made for (some of) the model's parameters.
  template <std::derived_from<torch::optim::Optimizer> T>
  OptimizerSpec(std::shared_ptr<T> optimizer) : choice_(TorchOptimizer(std::move(optimizer))) {}

  // A function that makes an optimizer for the parameters when training starts: a torch optimizer,
  // or an object of your own class. The parameters outlive the optimizer.
  template <MakesTorchOptimizer F>
  OptimizerSpec(F factory) : choice_(TorchFactory(std::move(factory))) {}
  template <MakesOptimizer F>
  OptimizerSpec(F factory) : choice_(Factory(std::move(factory))) {}

  bool has_value() const { return choice_.index() != 0; }
  explicit operator bool() const { return has_value(); }

  // The parameters must outlive the optimizer. Throws ConfigError for a value out of its range, for
  // settings of parameters that do not exist, for a torch optimizer of other parameters, and if
  // this spec is empty.
  std::unique_ptr<Optimizer> make(FlatParameters& parameters) const;

  using LookaheadPtr = std::shared_ptr<const Lookahead>;
  using Choice =
      std::variant<std::monostate, Adam, AdamW, SGD, RMSprop, Adagrad, RAdam, NAdam, Adamax,
                   Adadelta, Lion, Lamb, LookaheadPtr, TorchOptimizer, TorchFactory, Factory>;
  const Choice& choice() const { return choice_; }
  const std::vector<ParameterSettings>& settings() const { return settings_; }

  // Whether the settings say that the run does not train this parameter.
  bool freezes(const std::string& parameter) const;

 private:
  Choice choice_;
  std::vector<ParameterSettings> settings_;
};

struct Lookahead {
  OptimizerSpec optimizer;  // any of Lockstep's or torch's, or your own; required
  // Its steps between two updates of the slow weights. A parameter that takes no part in the step
  // of such an update, because it is frozen, for example, keeps its value.
  std::int64_t k = 5;
  double alpha = 0.5;  // how far the slow weights move to the optimizer's
};

}  // namespace lockstep::optim
