// Numbers whose sum depends on the order of adding them.
#pragma once

#include <array>
#include <cstring>
#include <vector>

#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/comm/tree.h"

namespace lockstep::comm {

inline constexpr std::array kAllTypes = {
    torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16, torch::kInt8,
    torch::kUInt8,   torch::kInt16,   torch::kInt32,   torch::kInt64,    torch::kBool};

inline constexpr std::array kAllOps = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                                       ReduceOp::kProduct};

// The same in every process. Each seed takes another part of one list of random numbers. Integers
// are large enough to wrap around.
inline torch::Tensor random_tensor(std::uint64_t seed, std::int64_t count, torch::ScalarType type) {
  constexpr std::int64_t kNumbers = 500'000;
  static const torch::Tensor reals = [] {
    torch::manual_seed(1);
    return torch::randn({kNumbers}, torch::kFloat64) *
           torch::exp(torch::randn({kNumbers}, torch::kFloat64));
  }();
  static const torch::Tensor integers =
      torch::randint(std::int64_t{1} << 62, {kNumbers}, torch::kInt64);
  const auto first = static_cast<std::int64_t>(seed) * 1009;
  if (type == torch::kBool) return reals.narrow(0, first, count) > 0;
  return (c10::isFloatingType(type) ? reals : integers)
      .narrow(0, first, count)
      .to(torch::TensorOptions(type), /*non_blocking=*/false, /*copy=*/true);
}

inline std::vector<torch::Tensor> random_tensors(int how_many, std::int64_t count,
                                                 torch::ScalarType type) {
  std::vector<torch::Tensor> tensors;
  for (int i = 0; i < how_many; ++i) {
    tensors.push_back(random_tensor(static_cast<std::uint64_t>(i), count, type));
  }
  return tensors;
}

inline bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor x = a.cpu().contiguous();
  const torch::Tensor y = b.cpu().contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         (x.numel() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0);
}

// The result if one process reduces all terms.
inline torch::Tensor reduced_by_one(const std::vector<torch::Tensor>& terms, ReduceOp op,
                                    Wire wire = Wire::kFp32) {
  const int leaves = static_cast<int>(terms.size());
  std::vector<const void*> inputs;
  for (const auto& term : terms) inputs.push_back(term.data_ptr());
  torch::Tensor out = torch::empty_like(terms.front());
  void* const outputs[] = {out.data_ptr()};
  Tree(leaf_nodes({.begin = 0, .end = leaves}), leaves)
      .reduce(inputs, outputs, out.numel(), out.scalar_type(), op, wire);
  if (op == ReduceOp::kMean) out.div_(leaves);
  return out;
}

}  // namespace lockstep::comm
