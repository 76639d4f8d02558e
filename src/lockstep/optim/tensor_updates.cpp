#include "lockstep/optim/tensor_updates.h"

#include <torch/types.h>
#include <torch/utils.h>

namespace lockstep::optim {
namespace {

// Scales the gradient in place and returns it with the weight decay added.
torch::Tensor decayed_gradient(const GradientUse& use, double weight_decay,
                               const UpdateTensors& tensors) {
  if (use.scale != 1.0) tensors.grads.mul_(use.scale);
  if (weight_decay == 0.0) return tensors.grads;
  return tensors.grads.add(tensors.values, weight_decay);
}

void finish(const GradientUse& use, const UpdateTensors& tensors) {
  if (use.zero) tensors.grads.zero_();
}

// The running means of the gradient and of its square.
void add_moments(const LambMoments& update, const torch::Tensor& grad,
                 const UpdateTensors& tensors) {
  tensors.state[0].mul_(update.beta1).add_(grad, 1.0 - update.beta1);
  tensors.state[1].mul_(update.beta2).addcmul_(grad, grad, 1.0 - update.beta2);
}

torch::Tensor lamb_direction(const LambUpdate& update, const UpdateTensors& tensors) {
  const torch::Tensor& exp_avg = tensors.state[0];
  const torch::Tensor& exp_avg_sq = tensors.state[1];
  const torch::Tensor size = exp_avg_sq.div(update.correction2).sqrt_().add_(update.eps);
  torch::Tensor direction = exp_avg.div(update.correction1).div_(size);
  if (update.weight_decay != 0.0) direction.add_(tensors.values, update.weight_decay);
  return direction;
}

}  // namespace

UpdateTensors narrowed(const UpdateTensors& tensors, const ElementRange& range) {
  const auto view = [&](const torch::Tensor& tensor) {
    return tensor.defined() ? tensor.narrow(0, range.begin, range.size()) : tensor;
  };
  UpdateTensors views{.values = view(tensors.values),
                      .grads = view(tensors.grads),
                      .state = {},
                      .factor = tensors.factor};
  for (std::size_t i = 0; i < views.state.size(); ++i) views.state[i] = view(tensors.state[i]);
  return views;
}

void apply(const AdamUpdate& update, const UpdateTensors& tensors) {
  torch::NoGradGuard no_grad;
  const auto& [exp_avg, exp_avg_sq, max_exp_avg_sq] = tensors.state;
  const torch::Tensor grad = decayed_gradient(update.gradient, update.weight_decay, tensors);
  exp_avg.mul_(update.beta1).add_(grad, 1.0 - update.beta1);
  exp_avg_sq.mul_(update.beta2).addcmul_(grad, grad, 1.0 - update.beta2);
  if (max_exp_avg_sq.defined()) {
    max_exp_avg_sq.copy_(torch::maximum(max_exp_avg_sq, exp_avg_sq));
  }
  const torch::Tensor& second = max_exp_avg_sq.defined() ? max_exp_avg_sq : exp_avg_sq;
  const torch::Tensor denominator = second.sqrt().div_(update.sqrt_correction).add_(update.eps);
  if (update.shrink != 1.0) tensors.values.mul_(update.shrink);
  tensors.values.addcdiv_(exp_avg, denominator, -update.step_size);
  finish(update.gradient, tensors);
}

void apply(const SGDUpdate& update, const UpdateTensors& tensors) {
  torch::NoGradGuard no_grad;
  const torch::Tensor& momentum_buffer = tensors.state[0];
  torch::Tensor direction = decayed_gradient(update.gradient, update.weight_decay, tensors);
  if (update.momentum != 0.0) {
    momentum_buffer.mul_(update.momentum).add_(direction, update.gain);
    direction = update.nesterov ? direction.add(momentum_buffer, update.momentum) : momentum_buffer;
  }
  tensors.values.add_(direction, -update.lr);
  finish(update.gradient, tensors);
}

void apply(const RMSpropUpdate& update, const UpdateTensors& tensors) {
  torch::NoGradGuard no_grad;
  const auto& [square_avg, grad_avg, momentum_buffer] = tensors.state;
  const torch::Tensor grad = decayed_gradient(update.gradient, update.weight_decay, tensors);
  square_avg.mul_(update.alpha).addcmul_(grad, grad, 1.0 - update.alpha);
  torch::Tensor variance = square_avg;
  if (grad_avg.defined()) {
    grad_avg.mul_(update.alpha).add_(grad, 1.0 - update.alpha);
    variance = square_avg.addcmul(grad_avg, grad_avg, -1.0).clamp_min_(0.0);
  }
  const torch::Tensor denominator = variance.sqrt().add_(update.eps);
  if (update.momentum != 0.0) {
    momentum_buffer.mul_(update.momentum).addcdiv_(grad, denominator);
    tensors.values.add_(momentum_buffer, -update.lr);
  } else {
    tensors.values.addcdiv_(grad, denominator, -update.lr);
  }
  finish(update.gradient, tensors);
}

void apply(const AdagradUpdate& update, const UpdateTensors& tensors) {
  torch::NoGradGuard no_grad;
  const torch::Tensor& sum = tensors.state[0];
  const torch::Tensor grad = decayed_gradient(update.gradient, update.weight_decay, tensors);
  sum.addcmul_(grad, grad, 1.0);
  tensors.values.addcdiv_(grad, sum.sqrt().add_(update.eps), -update.lr);
  finish(update.gradient, tensors);
}

void apply(const RAdamUpdate& update, const UpdateTensors& tensors) {
  torch::NoGradGuard no_grad;
  const torch::Tensor& exp_avg = tensors.state[0];
  const torch::Tensor& exp_avg_sq = tensors.state[1];
  const torch::Tensor grad = decayed_gradient(update.gradient, update.weight_decay, tensors);
  add_moments({.beta1 = update.beta1, .beta2 = update.beta2}, grad, tensors);
  if (update.rectified) {
    tensors.values.addcdiv_(exp_avg, exp_avg_sq.sqrt().add_(update.eps), -update.step_size);
  } else {
    tensors.values.add_(exp_avg, -update.step_size);
  }
  finish(update.gradient, tensors);
}

void apply(const NAdamUpdate& update, const UpdateTensors& tensors) {
  torch::NoGradGuard no_grad;
  const torch::Tensor& exp_avg = tensors.state[0];
  const torch::Tensor& exp_avg_sq = tensors.state[1];
  const torch::Tensor grad = decayed_gradient(update.gradient, update.weight_decay, tensors);
  add_moments({.beta1 = update.beta1, .beta2 = update.beta2}, grad, tensors);
  const torch::Tensor denominator = exp_avg_sq.div(update.correction).sqrt_().add_(update.eps);
  tensors.values.addcdiv_(grad, denominator, -update.gradient_size);
  tensors.values.addcdiv_(exp_avg, denominator, -update.momentum_size);
  finish(update.gradient, tensors);
}

void apply(const AdamaxUpdate& update, const UpdateTensors& tensors) {
  torch::NoGradGuard no_grad;
  const torch::Tensor& exp_avg = tensors.state[0];
  const torch::Tensor& exp_inf = tensors.state[1];
  const torch::Tensor grad = decayed_gradient(update.gradient, update.weight_decay, tensors);
  exp_avg.mul_(update.beta1).add_(grad, 1.0 - update.beta1);
  exp_inf.copy_(torch::maximum(exp_inf * update.beta2, grad.abs().add_(update.eps)));
  tensors.values.addcdiv_(exp_avg, exp_inf, -update.step_size);
  finish(update.gradient, tensors);
}

void apply(const AdadeltaUpdate& update, const UpdateTensors& tensors) {
  torch::NoGradGuard no_grad;
  const torch::Tensor& square_avg = tensors.state[0];
  const torch::Tensor& acc_delta = tensors.state[1];
  const torch::Tensor grad = decayed_gradient(update.gradient, update.weight_decay, tensors);
  square_avg.mul_(update.rho).addcmul_(grad, grad, 1.0 - update.rho);
  const torch::Tensor size = square_avg.add(update.eps).sqrt_();
  const torch::Tensor delta = acc_delta.add(update.eps).sqrt_().div_(size).mul_(grad);
  acc_delta.mul_(update.rho).addcmul_(delta, delta, 1.0 - update.rho);
  tensors.values.add_(delta, -update.lr);
  finish(update.gradient, tensors);
}

void apply(const LionUpdate& update, const UpdateTensors& tensors) {
  torch::NoGradGuard no_grad;
  const torch::Tensor& exp_avg = tensors.state[0];
  const torch::Tensor grad = decayed_gradient(update.gradient, 0.0, tensors);
  const torch::Tensor direction = exp_avg.mul(update.beta1).add_(grad, 1.0 - update.beta1).sign_();
  exp_avg.mul_(update.beta2).add_(grad, 1.0 - update.beta2);
  if (update.shrink != 1.0) tensors.values.mul_(update.shrink);
  tensors.values.add_(direction, -update.lr);
  finish(update.gradient, tensors);
}

void apply(const LambMoments& update, const UpdateTensors& tensors) {
  torch::NoGradGuard no_grad;
  add_moments(update, decayed_gradient(update.gradient, 0.0, tensors), tensors);
  finish(update.gradient, tensors);
}

void apply(const LambUpdate& update, const UpdateTensors& tensors) {
  torch::NoGradGuard no_grad;
  torch::Tensor direction = lamb_direction(update, tensors);
  if (tensors.factor.defined()) direction.mul_(tensors.factor.to(direction.scalar_type()));
  tensors.values.sub_(direction, update.step_size);
}

void apply(const LookaheadUpdate& update, const UpdateTensors& tensors) {
  torch::NoGradGuard no_grad;
  const torch::Tensor& slow = tensors.state[0];
  slow.add_(tensors.values.sub(slow), update.alpha);
  tensors.values.copy_(slow);
}

torch::Tensor lamb_ratio(const LambUpdate& update, const UpdateTensors& tensors,
                         double max_weight_norm) {
  torch::NoGradGuard no_grad;
  const auto norm_of = [](const torch::Tensor& tensor) {
    return tensor.to(torch::kFloat64).square().sum().sqrt();
  };
  const torch::Tensor weights = norm_of(tensors.values).clamp_max(max_weight_norm);
  const torch::Tensor updates = norm_of(lamb_direction(update, tensors));
  return torch::where((weights > 0).logical_and(updates > 0), weights / updates,
                      torch::ones_like(weights));
}

}  // namespace lockstep::optim
