#include "lockstep/dist/gradient_message.h"

#include <utility>

#include <fmt/ranges.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"

namespace lockstep::dist {
namespace {

constexpr std::size_t kWeight = 0;
constexpr std::size_t kPlace = 1;
constexpr auto kMarks = static_cast<std::size_t>(GradientMessage::kHead);

}  // namespace

torch::ScalarType GradientMessage::type_of(const torch::Tensor& parameter) {
  if (!parameter.is_floating_point()) {
    throw ConfigError(
        "average of gradients: expected parameters of real numbers, got one of {} [{}]",
        c10::toString(parameter.scalar_type()), fmt::join(parameter.sizes(), ", "));
  }
  return parameter.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

GradientMessage::GradientMessage(std::vector<torch::Tensor> parameters)
    : parameters_(std::move(parameters)) {
  const auto head = static_cast<std::int64_t>(kMarks + parameters_.size());
  std::int64_t size = head;
  for (const auto& parameter : parameters_) size += parameter.numel();
  const torch::Tensor& first = parameters_.front();
  array_ = torch::zeros({size}, torch::dtype(type_of(first)).device(first.device()));
  head_ = array_.device().is_cpu()
              ? array_.narrow(0, 0, head)
              : torch::zeros({head}, torch::dtype(array_.scalar_type()).pinned_memory(on_gpu()));
  std::int64_t begin = head;
  for (const auto& parameter : parameters_) {
    gradients_.push_back(array_.narrow(0, begin, parameter.numel()).view(parameter.sizes()));
    begin += parameter.numel();
  }
}

// Waits for the device on which the array is, if it is not on the CPU.
void GradientMessage::fetch_head() {
  if (std::exchange(has_sum_, true) || array_.device().is_cpu()) return;
  const torch::NoGradGuard no_grad;
  head_.copy_(array_.narrow(0, 0, head_.numel()));
}

double GradientMessage::number(std::size_t index) const {
  return head_.scalar_type() == torch::kFloat64 ? head_.data_ptr<double>()[index]
                                                : head_.data_ptr<float>()[index];
}

void GradientMessage::set_number(std::size_t index, double value) {
  if (head_.scalar_type() == torch::kFloat64) {
    head_.data_ptr<double>()[index] = value;
  } else {
    head_.data_ptr<float>()[index] = static_cast<float>(value);
  }
}

void GradientMessage::write_head(const Head& head) {
  set_number(kWeight, head.weight);
  for (std::size_t i = 0; i < head.place.size(); ++i) {
    set_number(kPlace + i, static_cast<double>(head.place[i]));
  }
  has_sum_ = false;
  if (array_.device().is_cpu()) return;
  const torch::NoGradGuard no_grad;
  // Does not wait. The copy is done before the sum is, and head_ is written again only after that.
  array_.narrow(0, 0, head_.numel()).copy_(head_, /*non_blocking=*/on_gpu());
}

void GradientMessage::write_gradient(std::size_t index, const Contribution& contribution) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& grad = parameters_[index].grad();
  if (grad.defined() && grad.layout() != torch::kStrided) {
    throw ConfigError(
        "average of gradients: expected dense gradients, got a sparse one of shape [{}]",
        fmt::join(grad.sizes(), ", "));
  }
  set_number(kMarks + index, grad.defined() && contribution.is_new ? 1 : 0);
  torch::Tensor& written = gradients_[index];
  // A weight of 0 does not multiply: a gradient of a rank that does not count may be infinite.
  if (!grad.defined() || contribution.weight == 0) {
    written.zero_();
    return;
  }
  written.copy_(grad);
  if (contribution.weight != 1) written.mul_(contribution.weight);
}

bool GradientMessage::has_place(const std::array<std::int64_t, 3>& place, int ranks) {
  fetch_head();
  for (std::size_t i = 0; i < place.size(); ++i) {
    if (number(kPlace + i) != static_cast<double>(place[i]) * ranks) return false;
  }
  return true;
}

void GradientMessage::read_means() {
  const torch::NoGradGuard no_grad;
  fetch_head();
  const double weight = number(kWeight);
  if (weight == 0) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (number(kMarks + i) == 0) continue;
    torch::Tensor& parameter = parameters_[i];
    if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
    parameter.mutable_grad().copy_(gradients_[i].div_(weight));
  }
}

}  // namespace lockstep::dist
