// The result of a model: one tensor, several, or a batch of named ones.
//
//   const ls::Outputs outputs = model.outputs(image, weather);
//   outputs.count(), outputs[0], outputs["angle"] (if the model returns a batch)
//   outputs.to_batch({"class", "angle"})
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/util/SmallVector.h>
#include <torch/types.h>

#include "lockstep/data/batch.h"

namespace lockstep {

// Types that consist of tensors only: tuples, pairs, arrays and vectors, also inside of each other.
template <typename T>
inline constexpr bool kIsTensors = std::convertible_to<T, torch::Tensor>;
template <typename... T>
inline constexpr bool kIsTensors<std::tuple<T...>> = (kIsTensors<std::remove_cvref_t<T>> && ...);
template <typename A, typename B>
inline constexpr bool kIsTensors<std::pair<A, B>> =
    kIsTensors<std::remove_cvref_t<A>>&& kIsTensors<std::remove_cvref_t<B>>;
template <typename T, std::size_t N>
inline constexpr bool kIsTensors<std::array<T, N>> = kIsTensors<T>;
template <typename T>
inline constexpr bool kIsTensors<std::vector<T>> = kIsTensors<T>;

// The types that a model's forward may return.
template <typename T>
concept ModelOutput =
    kIsTensors<std::remove_cvref_t<T>> || std::same_as<std::remove_cvref_t<T>, Batch>;

class Outputs {
 public:
  Outputs() = default;
  explicit Outputs(torch::Tensor tensor) { tensors_.push_back(std::move(tensor)); }
  explicit Outputs(const std::vector<torch::Tensor>& tensors)
      : tensors_(tensors.begin(), tensors.end()) {}
  explicit Outputs(Batch named) : named_(std::move(named)), is_named_(true) {}

  // Tensors inside of tuples and vectors become one sequence: an LSTM, which returns
  // (output, (h, c)), has three.
  template <ModelOutput T>
  static Outputs of(T&& returned) {
    if constexpr (std::same_as<std::remove_cvref_t<T>, Batch>) {
      return Outputs(Batch(std::forward<T>(returned)));
    } else {
      Outputs outputs;
      outputs.append(std::forward<T>(returned));
      return outputs;
    }
  }

  // The number of tensors, and each of them. Throws ConfigError if there is no such tensor.
  std::size_t count() const;
  const torch::Tensor& operator[](std::size_t index) const;
  const torch::Tensor& operator[](std::string_view key) const;  // if the model returned a batch

  // The only tensor. Throws ConfigError if there are several.
  const torch::Tensor& tensor() const;

  // Whether the model returned a batch.
  bool is_named() const { return is_named_; }

  // The outputs by name. If the model returned a batch, only the values of these keys, or all of
  // them if no keys are given. Otherwise throws ConfigError if there are not as many keys as
  // tensors.
  Batch to_batch(const std::vector<std::string>& keys = {}) const;

  // "2 tensors: Float [8, 10], Float [8, 1]"
  std::string describe() const;

 private:
  template <typename T>
  void append(T&& value) {
    if constexpr (std::convertible_to<T, torch::Tensor>) {
      tensors_.push_back(std::forward<T>(value));
    } else if constexpr (requires { std::tuple_size<std::remove_cvref_t<T>>::value; }) {
      std::apply([this](const auto&... part) { (append(part), ...); }, value);
    } else {
      for (const auto& part : value) append(part);
    }
  }

  c10::SmallVector<torch::Tensor, 2> tensors_;  // usually one, which then needs no allocation
  Batch named_;
  bool is_named_ = false;
};

}  // namespace lockstep
