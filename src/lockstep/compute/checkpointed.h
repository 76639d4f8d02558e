// Activation checkpointing: a module whose activations are not kept for backward(), but computed
// again in it. This saves memory and costs a second forward pass of the module.
//
//   nn::Sequential model(ls::checkpointed(Block(64)), ls::checkpointed(Block(64)), nn::Linear(64,
//   10));
//
// Outputs, gradients, random numbers and running statistics have the same bits as without it, and
// the parameters have the same names, so checkpoint files fit both. What a module must not do is
// said in docs/guide/activation-checkpointing.md.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace lockstep {

namespace compute {

using TensorList = std::vector<torch::Tensor>;

// The outputs of a module for some inputs. It is called once in forward() and once in each
// backward().
using SegmentFunction = std::function<TensorList(const TensorList& inputs)>;

// Whether backward() may need what is computed now: gradients are recorded, and an input or a
// parameter requires one.
bool records_gradients(const torch::nn::Module& module, const TensorList& inputs);

// Returns run(inputs), for which backward() calls `run` again. `run` must use no parameters but
// those of the module. Throws ConfigError if a parameter has a hook, or if `run` changed an input
// in place.
TensorList run_checkpointed(const torch::nn::Module& module, const TensorList& inputs,
                            SegmentFunction run);

template <typename T>
inline constexpr bool kIsArrayRef = false;
template <typename T>
inline constexpr bool kIsArrayRef<c10::ArrayRef<T>> = true;

// Calls `function` for every defined tensor in a tensor, optional, tuple, pair or vector, also in
// nested ones. In other types there is none.
template <typename T, typename Function>
void for_each_tensor(T& value, const Function& function) {
  if constexpr (std::same_as<T, torch::Tensor>) {
    if (value.defined()) function(value);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](auto&... items) { (for_each_tensor(items, function), ...); }, value);
  } else if constexpr (requires {
                         value.has_value();
                         *value;
                       }) {
    if (value.has_value()) for_each_tensor(*value, function);
  } else if constexpr (requires(typename T::allocator_type) { value.begin(); }) {
    for (auto& item : value) for_each_tensor(item, function);
  } else {
    static_assert(!std::is_pointer_v<T> && !kIsArrayRef<T>,
                  "checkpointed: forward takes an argument that does not own its values, and they "
                  "may not exist any more in backward()");
  }
}

// A module that has the parameters, buffers and children of another one, under the same names.
class SameNames : public torch::nn::Module {
 public:
  explicit SameNames(std::shared_ptr<torch::nn::Module> original);

  void train(bool on = true) override;
  void pretty_print(std::ostream& stream) const override;

 private:
  std::shared_ptr<torch::nn::Module> original_;
};

// The call of `forward` by run_checkpointed(). `M` is a module, `Values` are its arguments.
template <typename Result, typename Forward, typename... Values>
Result checkpointed_call(const std::shared_ptr<torch::nn::Module>& module, const Forward& forward,
                         std::tuple<Values...> values) {
  TensorList inputs;
  for_each_tensor(values, [&](const torch::Tensor& tensor) { inputs.push_back(tensor); });
  if (!records_gradients(*module, inputs)) return std::apply(forward, std::move(values));
  // `run` lives until backward(), and must not keep the inputs alive longer than autograd does.
  const torch::Tensor place = torch::empty({0});
  for_each_tensor(values, [&](torch::Tensor& tensor) { tensor = place; });
  // Only forward() needs the whole result.
  const auto result = std::make_shared<std::optional<Result>>();
  const auto run = [module, forward, values,
                    result_of_forward = std::weak_ptr(result)](const TensorList& given) {
    auto own = values;
    auto next = given.begin();
    for_each_tensor(own, [&](torch::Tensor& tensor) { tensor = *next++; });
    Result made = std::apply(forward, std::move(own));
    TensorList outputs;
    for_each_tensor(made, [&](const torch::Tensor& tensor) { outputs.push_back(tensor); });
    if (const auto wanted = result_of_forward.lock()) *wanted = std::move(made);
    return outputs;
  };
  const TensorList outputs = run_checkpointed(*module, inputs, run);
  auto next = outputs.begin();
  for_each_tensor(**result, [&](torch::Tensor& tensor) { tensor = *next++; });
  return std::move(**result);
}

}  // namespace compute

// What checkpointed() makes of a module M. Its forward has the same arguments and result.
template <typename M, typename Forward = void>
class CheckpointedImpl;

template <typename M, typename Base, typename Result, typename... Arguments>
class CheckpointedImpl<M, Result (Base::*)(Arguments...)> : public compute::SameNames {
 public:
  explicit CheckpointedImpl(std::shared_ptr<M> module)
      : SameNames(module), module_(std::move(module)) {}

  Result forward(Arguments... arguments) {
    return compute::checkpointed_call<Result>(
        module_, [module = module_](auto&&... own) { return module->forward(own...); },
        std::tuple<std::remove_cvref_t<Arguments>...>(arguments...));
  }

  std::shared_ptr<torch::nn::Module> clone(
      const torch::optional<torch::Device>& device = torch::nullopt) const override {
    return std::make_shared<CheckpointedImpl>(std::dynamic_pointer_cast<M>(module_->clone(device)));
  }

 private:
  std::shared_ptr<M> module_;
};

// The forward of a Sequential is a template. Here it takes one tensor and returns one, so a
// checkpointed Sequential can be a layer of another Sequential.
template <>
class CheckpointedImpl<torch::nn::SequentialImpl, void> : public compute::SameNames {
 public:
  explicit CheckpointedImpl(std::shared_ptr<torch::nn::SequentialImpl> module)
      : SameNames(module), module_(std::move(module)) {}

  torch::Tensor forward(const torch::Tensor& input);
  std::shared_ptr<torch::nn::Module> clone(
      const torch::optional<torch::Device>& device = torch::nullopt) const override;

 private:
  std::shared_ptr<torch::nn::SequentialImpl> module_;
};

// Any module that takes one tensor and returns one.
template <>
class CheckpointedImpl<torch::nn::AnyModule, void> : public compute::SameNames {
 public:
  explicit CheckpointedImpl(torch::nn::AnyModule module)
      : SameNames(module.ptr()), module_(std::move(module)) {}

  torch::Tensor forward(const torch::Tensor& input);
  std::shared_ptr<torch::nn::Module> clone(
      const torch::optional<torch::Device>& device = torch::nullopt) const override;

 private:
  torch::nn::AnyModule module_;
};

namespace compute {

template <typename M>
struct CheckpointedType {
  using type = CheckpointedImpl<M, decltype(&M::forward)>;
};
template <>
struct CheckpointedType<torch::nn::SequentialImpl> {
  using type = CheckpointedImpl<torch::nn::SequentialImpl>;
};
template <>
struct CheckpointedType<torch::nn::AnyModule> {
  using type = CheckpointedImpl<torch::nn::AnyModule>;
};

}  // namespace compute

// The type of checkpointed(module), for a member: ls::Checkpointed<BlockImpl> block{nullptr};
template <typename M>
using Checkpointed = torch::nn::ModuleHolder<typename compute::CheckpointedType<M>::type>;

template <std::derived_from<torch::nn::Module> M>
Checkpointed<M> checkpointed(std::shared_ptr<M> module) {
  return Checkpointed<M>(
      std::make_shared<typename compute::CheckpointedType<M>::type>(std::move(module)));
}

template <typename M>
Checkpointed<M> checkpointed(const torch::nn::ModuleHolder<M>& module) {
  return checkpointed(module.ptr());
}

Checkpointed<torch::nn::AnyModule> checkpointed(torch::nn::AnyModule module);

}  // namespace lockstep
