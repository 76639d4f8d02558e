// A loss: a criterion of LibTorch's or of yours, or a function of (outputs, targets).
//
//   ls::Criterion a = torch::nn::CrossEntropyLoss();
//   ls::Criterion b = [](const torch::Tensor& x, const torch::Tensor& y) { return (x -
//   y).abs().mean(); };
//
// It also says what its result is a mean over (train/loss.h). For LibTorch's criterions that is
// known: CrossEntropyLoss and NLLLoss are means over the targets that are not ignored (-100
// included), by their class weights; with reduction kSum a criterion is a sum; all others are means
// over samples. Your own is taken for a mean over samples, unless you say otherwise:
//
//   ls::Criterion c = ls::Criterion(masked_mse).mean_over(
//       [](const torch::Tensor&, const torch::Tensor& y) { return
//       y.isfinite().sum().item<double>(); });
//   ls::Criterion d = ls::Criterion(total_energy).as_sum();
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "lockstep/state/state_dict.h"
#include "lockstep/train/loss.h"

namespace lockstep {

template <typename M>
concept LossModule = std::derived_from<M, torch::nn::Module> &&
    requires(M module, torch::Tensor input, torch::Tensor target) {
  { module.forward(input, target) } -> std::convertible_to<torch::Tensor>;
};

// A handle: copies share one criterion.
class Criterion {
 public:
  using Function = std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)>;
  // What the loss of (outputs, targets) is a mean over.
  using Over = std::function<LossOver(const torch::Tensor&, const torch::Tensor&)>;
  using Weight = std::function<double(const torch::Tensor&, const torch::Tensor&)>;

  Criterion() = default;

  template <LossModule M>
  Criterion(std::shared_ptr<M> module)
      : module_(module),
        function_([module](const torch::Tensor& outputs, const torch::Tensor& targets) {
          return module->forward(outputs, targets);
        }),
        over_(over_of(module)) {}

  template <LossModule M>
  Criterion(const torch::nn::ModuleHolder<M>& holder) : Criterion(holder.ptr()) {}

  // A holder can be called, too, but is more than a function: it has buffers to move and to save.
  template <typename F>
  requires(std::is_invocable_r_v<torch::Tensor, F, const torch::Tensor&, const torch::Tensor&> &&
           !requires(F holder) { holder.ptr(); }) Criterion(F function)
      : function_(std::move(function)) {}

  explicit operator bool() const { return function_ != nullptr; }

  torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const {
    return function_(outputs, targets);
  }

  // What the loss of these is a mean over.
  LossOver over(const torch::Tensor& outputs, const torch::Tensor& targets) const {
    return over_ ? over_(outputs, targets) : mean_over_samples();
  }

  // The same criterion, whose loss is a mean over what `weight` gives, or a sum.
  Criterion mean_over(Weight weight) const;
  Criterion as_sum() const;

  // The module's name and its options, as LibTorch prints it; "a function" for one; or "none".
  std::string describe() const;

  // Not a function, which may have got hold of anything: the model, say.
  bool is_module() const { return module_ != nullptr; }

  void to(torch::Device device) const;

  // Its parameters and buffers (class weights, say), copied, and back. A function has none.
  StateDict state() const;
  void load_state(const StateDict& state) const;

 private:
  // What is known of LibTorch's criterions; null: a mean over samples.
  static Over over_of(const std::shared_ptr<torch::nn::Module>& module);

  std::shared_ptr<torch::nn::Module> module_;
  Function function_;
  Over over_;  // null: a mean over samples
};

}  // namespace lockstep
