// A loss: a criterion of LibTorch, your own module, or a function of (outputs, targets).
//
//   ls::Criterion a = torch::nn::CrossEntropyLoss();
//   ls::Criterion b = [](const torch::Tensor& x, const torch::Tensor& y) {
//     return (x - y).abs().mean();
//   };
//
// A criterion also says what its result is a mean over (loss/over.h). This is known for LibTorch's
// criterions: CrossEntropyLoss and NLLLoss are means over the targets that are not ignored (by
// default -100 is ignored), weighted by class; a criterion with reduction kSum is a sum;
// all others are means over samples. Your own criterion is treated as a mean over samples, unless
// you say otherwise:
//
//   ls::Criterion c = ls::Criterion(masked_mse).mean_over(
//       [](const torch::Tensor&, const torch::Tensor& y) {
//         return y.isfinite().sum().item<double>();
//       });
//   ls::Criterion d = ls::Criterion(total_energy).as_sum();
//
// A module may also derive from StatedLoss (loss/over.h) and say it itself, as Lockstep's own do.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "lockstep/loss/over.h"
#include "lockstep/state/state_dict.h"

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

  // A module holder can be called, too, but it must not become a plain function: its module has
  // buffers to move and to save.
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

  // Whether it compares samples with each other (StatedLoss::mixes_samples), so that several shards
  // have another loss than one.
  bool mixes_samples() const;

  // Throws ConfigError if one of LibTorch's criterions would accept these but could not be meant:
  // it would broadcast shapes that differ, or refuse integer targets only in the first backward
  // pass.
  void check_shapes(const torch::Tensor& outputs, const torch::Tensor& targets) const;
  // Throws ConfigError if a target is a class for which there is no output. Without this check,
  // only the first batch that has such a class fails, maybe hours later.
  void check_classes(const torch::Tensor& outputs, const torch::Tensor& targets) const;

  // The same criterion, with a loss that is a mean over what `weight` returns, or a sum.
  Criterion mean_over(Weight weight) const;
  Criterion as_sum() const;
  // The same criterion as a mean over samples, so that it can be added to others that are: cross
  // entropy of images to a DiceLoss. This is the same if all targets count and all samples have as
  // many of them. Throws ConfigError in a batch in which a target is ignored or weighted.
  Criterion over_samples() const;

  // The name and the options of the module, as LibTorch prints them; "a function"; or "none".
  std::string describe() const;

  // False for a function, which may have captured anything, the model for example.
  bool is_module() const { return module_ != nullptr; }

  void to(torch::Device device) const;

  // A function has none.
  std::vector<torch::Tensor> parameters() const;

  // Copies of its parameters and buffers (class weights, for example), and back. A function has
  // none.
  StateDict state() const;
  StateDict view_state() const;  // without copying: the tensors are its own
  void load_state(const StateDict& state) const;

 private:
  // What LibTorch's criterions are means over; null: a mean over samples.
  static Over over_of(const std::shared_ptr<torch::nn::Module>& module);

  std::shared_ptr<torch::nn::Module> module_;
  Function function_;
  Over over_;  // null: a mean over samples
};

}  // namespace lockstep
