#include "lockstep/dist/distributed_model.h"

#include <cmath>

#include <fmt/ranges.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/dist/dist.h"

namespace lockstep::dist {
namespace {

// Gradients of lower precision are summed as float32, because a sum in half precision loses digits.
torch::ScalarType message_type(const torch::Tensor& parameter) {
  return parameter.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

// One array, so that one reduction is enough: [the elements of all gradients, one number per
// parameter that says whether it has a gradient, the weight].
class Message {
 public:
  Message(std::vector<torch::Tensor> parameters, torch::ScalarType type, double weight)
      : parameters_(std::move(parameters)) {
    std::vector<std::int64_t> sizes;
    for (const auto& parameter : parameters_) sizes.push_back(parameter.numel());
    sizes.push_back(static_cast<std::int64_t>(parameters_.size()));
    sizes.push_back(1);
    std::int64_t all = 0;
    for (const std::int64_t size : sizes) all += size;
    flat_ = torch::zeros({all}, torch::dtype(type));
    pieces_ = flat_.split_with_sizes(sizes);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor& grad = parameters_[i].grad();
      if (!grad.defined()) continue;
      pieces_[i].copy_(grad.reshape({-1})).mul_(weight);
      present()[static_cast<std::int64_t>(i)].fill_(1);
    }
    pieces_.back().fill_(weight);
  }

  void exchange() { all_reduce(flat_); }

  void take() {
    const double weight = pieces_.back().item<double>();
    if (weight == 0) return;  // no rank had a sample
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (present()[static_cast<std::int64_t>(i)].item<double>() == 0) continue;
      torch::Tensor& parameter = parameters_[i];
      const torch::Tensor mean = pieces_[i].div_(weight).view(parameter.sizes());
      if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
      parameter.grad().copy_(mean);
    }
  }

 private:
  const torch::Tensor& present() const { return pieces_[pieces_.size() - 2]; }

  std::vector<torch::Tensor> parameters_;
  torch::Tensor flat_;
  std::vector<torch::Tensor> pieces_;  // views of it
};

void check(const torch::Tensor& parameter) {
  if (!parameter.grad().defined() || parameter.grad().layout() == torch::kStrided) return;
  throw ConfigError("average_gradients: expected dense gradients, got a sparse one of shape [{}]",
                    fmt::join(parameter.sizes(), ", "));
}

}  // namespace

void average_gradients(const std::vector<torch::Tensor>& parameters, double weight) {
  if (!std::isfinite(weight) || weight < 0) {
    throw ConfigError("average_gradients: weight: expected 0 or more, got {}", weight);
  }
  if (get_world_size() == 1) {
    barrier();  // throws if this process is one of several and has no group
    return;
  }
  torch::NoGradGuard no_grad;
  for (const auto type : {torch::kFloat32, torch::kFloat64}) {
    std::vector<torch::Tensor> alike;
    for (const auto& parameter : parameters) {
      if (!parameter.requires_grad() || message_type(parameter) != type) continue;
      check(parameter);
      alike.push_back(parameter);
    }
    if (alike.empty()) continue;
    Message message(std::move(alike), type, weight);
    message.exchange();
    message.take();
  }
}

DistributedModel::DistributedModel(Model model) : model_(std::move(model)) {
  if (!model_) throw ConfigError("prepare_ddp_model: expected a model, got none");
  sync_params(model_);
}

void DistributedModel::average_gradients(double weight) const {
  std::vector<torch::Tensor> parameters;
  for (const auto& [name, parameter] : model_.parameters()) parameters.push_back(parameter);
  dist::average_gradients(parameters, weight);
}

}  // namespace lockstep::dist
