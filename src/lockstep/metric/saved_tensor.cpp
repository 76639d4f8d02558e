#include "lockstep/metric/saved_tensor.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::metric {
namespace {

std::string describe(torch::ScalarType type, torch::IntArrayRef sizes) {
  return fmt::format("{} [{}]", c10::toString(type), fmt::join(sizes, ", "));
}

}  // namespace

template <typename T>
torch::Tensor tensor_of(std::span<const T> values, torch::IntArrayRef sizes) {
  torch::Tensor tensor = torch::empty(sizes, c10::CppTypeToScalarType<T>::value);
  TORCH_INTERNAL_ASSERT(tensor.numel() == static_cast<std::int64_t>(values.size()));
  std::ranges::copy(values, tensor.data_ptr<T>());
  return tensor;
}

template <typename T>
std::vector<T> saved_values(const StateDict& state, std::string_view key,
                            torch::IntArrayRef sizes) {
  const auto found = state.get<torch::Tensor>(key);
  const auto type = c10::CppTypeToScalarType<T>::value;
  if (!found.defined()) throw CheckpointError("{}: expected a tensor, found an undefined one", key);
  if (found.scalar_type() != type || found.sizes() != sizes) {
    throw CheckpointError("{}: expected {}, found {}", key, describe(type, sizes),
                          describe(found.scalar_type(), found.sizes()));
  }
  const torch::Tensor dense = found.to(torch::kCPU).contiguous();
  return {dense.data_ptr<T>(), dense.data_ptr<T>() + dense.numel()};
}

torch::Tensor saved_sum(const ExactSum& sum) {
  return tensor_of<std::int64_t>(sum.words(), {ExactSum::kWords});
}

torch::Tensor saved_sums(std::span<const ExactSum> sums) {
  std::vector<std::int64_t> words;
  for (const ExactSum& sum : sums) {
    words.insert(words.end(), sum.words().begin(), sum.words().end());
  }
  return tensor_of<std::int64_t>(words, {static_cast<std::int64_t>(sums.size()), ExactSum::kWords});
}

ExactSum read_sum(const StateDict& state, std::string_view key) {
  const auto saved = saved_values<std::int64_t>(state, key, {ExactSum::kWords});
  ExactSum::Words words{};
  std::ranges::copy(saved, words.begin());
  return ExactSum(words);
}

std::vector<ExactSum> read_sums(const StateDict& state, std::string_view key, std::int64_t count) {
  const auto saved = saved_values<std::int64_t>(state, key, {count, ExactSum::kWords});
  std::vector<ExactSum> sums;
  for (auto from = saved.begin(); from != saved.end(); from += ExactSum::kWords) {
    ExactSum::Words words{};
    std::copy_n(from, words.size(), words.begin());
    sums.emplace_back(words);
  }
  return sums;
}

template torch::Tensor tensor_of(std::span<const std::int64_t>, torch::IntArrayRef);
template torch::Tensor tensor_of(std::span<const float>, torch::IntArrayRef);
template torch::Tensor tensor_of(std::span<const std::uint8_t>, torch::IntArrayRef);
template std::vector<std::int64_t> saved_values(const StateDict&, std::string_view,
                                                torch::IntArrayRef);
template std::vector<float> saved_values(const StateDict&, std::string_view, torch::IntArrayRef);
template std::vector<std::uint8_t> saved_values(const StateDict&, std::string_view,
                                                torch::IntArrayRef);

}  // namespace lockstep::metric
