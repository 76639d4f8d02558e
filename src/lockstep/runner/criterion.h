// A loss: a criterion of LibTorch's or of yours, or a function of (outputs, targets).
//
//   ls::Criterion a = torch::nn::CrossEntropyLoss();
//   ls::Criterion b = [](const torch::Tensor& x, const torch::Tensor& y) { return (x -
//   y).abs().mean(); };
#pragma once

#include <concepts>
#include <functional>
#include <memory>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "lockstep/state/state_dict.h"

namespace lockstep {

template <typename M>
concept LossModule = std::derived_from<M, torch::nn::Module> &&
    requires(M module, torch::Tensor input, torch::Tensor target) {
  { module.forward(input, target) } -> std::convertible_to<torch::Tensor>;
};

// What the loss of a batch was divided by, which tells how those of its parts make that of the
// whole.
enum class LossMean {
  kSamples,  // their number; also of a function, which cannot be asked
  kTargets,  // what the targets weigh: class weights, without those that are ignored
  kNone,     // nothing: it is a sum
};

// A handle: copies share one criterion.
class Criterion {
 public:
  using Function = std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)>;

  Criterion() = default;

  template <LossModule M>
  Criterion(std::shared_ptr<M> module)
      : module_(module),
        function_([module](const torch::Tensor& outputs, const torch::Tensor& targets) {
          return module->forward(outputs, targets);
        }),
        mean_(mean_of(*module)) {}

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

  LossMean mean() const { return mean_; }
  // What these targets weigh. Of kTargets only.
  double weight_of(const torch::Tensor& targets) const;

  // Not a function, which may have got hold of anything: the model, say.
  bool is_module() const { return module_ != nullptr; }

  void to(torch::Device device) const;

  // Its parameters and buffers (class weights, say), copied, and back. A function has none.
  StateDict state() const;
  void load_state(const StateDict& state) const;

 private:
  static LossMean mean_of(const torch::nn::Module& module);

  std::shared_ptr<torch::nn::Module> module_;
  Function function_;
  LossMean mean_ = LossMean::kSamples;
};

}  // namespace lockstep
