#include "lockstep/engine/gradient_hook.h"

#include <memory>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep {
namespace {

struct AccumulationHook : torch::autograd::FunctionPostHook {
  explicit AccumulationHook(std::function<void()> call) : call_(std::move(call)) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& outputs,
      const torch::autograd::variable_list& /*inputs*/) override {
    call_();
    return outputs;
  }

 private:
  std::function<void()> call_;
};

}  // namespace

GradientHook::GradientHook(GradientHook&& other) noexcept
    : accumulator_(std::exchange(other.accumulator_, {})), key_(other.key_) {}

GradientHook& GradientHook::operator=(GradientHook&& other) noexcept {
  if (this == &other) return *this;
  detach();
  accumulator_ = std::exchange(other.accumulator_, {});
  key_ = other.key_;
  return *this;
}

bool GradientHook::lacks_hook(const torch::Tensor& parameter) const {
  return parameter.requires_grad() &&
         torch::autograd::impl::grad_accumulator(parameter) != accumulator_;
}

void GradientHook::add(const torch::Tensor& parameter, std::function<void()> call) {
  detach();
  accumulator_ = torch::autograd::impl::grad_accumulator(parameter);
  key_ = accumulator_->add_post_hook(std::make_unique<AccumulationHook>(std::move(call)));
}

void GradientHook::detach() {
  if (accumulator_) accumulator_->del_post_hook(key_);
  accumulator_ = {};
}

}  // namespace lockstep
