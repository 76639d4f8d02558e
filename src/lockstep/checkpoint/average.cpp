#include "lockstep/checkpoint/average.h"

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {

void WeightAverage::check(const StateDict& weights, const std::filesystem::path& file) const {
  for (const auto& [name, value] : last_) {
    if (!weights.contains(name)) {
      throw CheckpointError("{}: has no weight {}, which the first one has", file.string(), name);
    }
    const auto expected = last_.get<torch::Tensor>(name);
    const auto found = weights.get<torch::Tensor>(name);
    if (expected.sizes() != found.sizes() || expected.scalar_type() != found.scalar_type()) {
      throw CheckpointError("{}: weight {} is of another shape or type than the first one's",
                            file.string(), name);
    }
  }
  if (weights.size() != last_.size()) {
    throw CheckpointError("{}: expected {} weights, as the first one has, got {}", file.string(),
                          last_.size(), weights.size());
  }
}

void WeightAverage::add(const StateDict& weights, const std::filesystem::path& file) {
  if (count_ > 0) check(weights, file);
  for (const auto& [name, value] : weights) {
    const auto tensor = weights.get<torch::Tensor>(name);
    if (!tensor.is_floating_point()) continue;
    if (count_ == 0) {
      sums_.set(name, tensor.to(torch::kFloat64, /*non_blocking=*/false, /*copy=*/true));
    } else {
      sums_.get<torch::Tensor>(name).add_(tensor);
    }
  }
  last_ = weights;
  ++count_;
}

StateDict WeightAverage::mean() const {
  if (count_ == 0) throw ConfigError("expected checkpoints to average, got none");
  StateDict mean;
  for (const auto& [name, value] : last_) {
    if (!sums_.contains(name)) {
      mean.set(name, value);
      continue;
    }
    const auto sum = sums_.get<torch::Tensor>(name);
    mean.set(name,
             (sum / static_cast<double>(count_)).to(last_.get<torch::Tensor>(name).scalar_type()));
  }
  return mean;
}

}  // namespace lockstep::checkpoint
