// Learns when backward() has added to a parameter's gradient.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include <torch/types.h>

#include "lockstep/compute/autograd_node.h"

namespace lockstep {

// While it lives, backward() calls a function after the gradient of the parameter is complete. If
// the function throws, backward() throws the same.
class GradientHook {
 public:
  GradientHook() = default;
  ~GradientHook() { detach(); }
  GradientHook(GradientHook&& other) noexcept;
  GradientHook& operator=(GradientHook&& other) noexcept;
  GradientHook(const GradientHook&) = delete;
  GradientHook& operator=(const GradientHook&) = delete;

  // Call it before the next backward(), also again and again: it does nothing if the parameter has
  // the hook already. A parameter gets another accumulator, without the hook, if its type or device
  // is changed. A parameter that does not require a gradient has none, and gets no hook.
  template <typename Call>
  void attach(const torch::Tensor& parameter, Call&& call) {
    if (lacks_hook(parameter)) add(parameter, std::forward<Call>(call));
  }

 private:
  bool lacks_hook(const torch::Tensor& parameter) const;
  void add(const torch::Tensor& parameter, std::function<void()> call);
  void detach();

  // A parameter's accumulator lives only as long as there is a pointer to it.
  compute::NodePointer accumulator_;
  std::uintptr_t key_ = 0;  // of the hook
};

}  // namespace lockstep
