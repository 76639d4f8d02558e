// The gradients of some parameters as one array, which one reduction sums over the ranks:
//
//   [weight][place: 3 numbers][one mark per parameter][the gradients, times the weight]
//
// After the sum, a gradient divided by the weight is the weighted mean over the ranks. A mark is
// not zero if one of the ranks has a gradient of the parameter.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <torch/types.h>

namespace lockstep::dist {

class GradientMessage {
 public:
  // The type of the array. Gradients of lower precision are summed as float32, because a sum in
  // half precision loses digits. Throws ConfigError for a parameter that is not real.
  static torch::ScalarType type_of(const torch::Tensor& parameter);

  // All parameters have the same type_of() and are on one device, on which the array is, too.
  explicit GradientMessage(std::vector<torch::Tensor> parameters);

  const torch::Tensor& array() const { return array_; }
  // The numbers before the marks, which must not be rounded.
  static constexpr std::int64_t kHead = 4;

  struct Head {
    double weight = 1;
    // Three small numbers that must be the same on all ranks (has_place()).
    std::array<std::int64_t, 3> place = {};
  };
  // The last call before the sum.
  void write_head(const Head& head);

  struct Contribution {
    double weight = 1;   // the same as in the head
    bool is_new = true;  // whether there is something to average; see the marks
  };
  // Writes the current gradient of a parameter. No gradient counts as zero. Throws ConfigError for
  // a sparse gradient.
  void write_gradient(std::size_t index, const Contribution& contribution);

  // After the sum: whether all ranks had this place in their heads.
  bool has_place(const std::array<std::int64_t, 3>& place, int ranks);

  // After the sum: replaces the gradients of all parameters that have a mark by the mean. A
  // parameter without a gradient gets one. Changes nothing if the sum of all weights is 0.
  void read_means();

 private:
  bool on_gpu() const { return array_.is_cuda(); }
  void fetch_head();
  double number(std::size_t index) const;
  void set_number(std::size_t index, double value);

  std::vector<torch::Tensor> parameters_;
  torch::Tensor array_;
  // The numbers before the gradients: a part of the array, or its copy on the CPU. The copy of an
  // array on a GPU is in pinned memory, so that backward() does not wait for the GPU when it is
  // sent.
  torch::Tensor head_;
  bool has_sum_ = false;                  // whether head_ was fetched after the sum
  std::vector<torch::Tensor> gradients_;  // views of the array, in the shapes of the parameters
};

}  // namespace lockstep::dist
