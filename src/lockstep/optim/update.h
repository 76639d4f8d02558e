// The numbers of one optimizer step, computed once. Both the fused kernels (kernels.h) and the
// torch operations (tensor_updates.h) take them.
#pragma once

#include <cstdint>

namespace lockstep::optim {

struct GradientUse {
  double scale = 1.0;  // the gradient is multiplied by it first
  bool zero = true;    // and set to zero afterwards; else it is kept, scaled
};

// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g g
// p = shrink p - step_size m / (sqrt(v or its maximum) / sqrt_correction + eps)
// State: exp_avg, exp_avg_sq and, with amsgrad, max_exp_avg_sq.
struct AdamUpdate {
  GradientUse gradient;
  double beta1 = 0.0;
  double beta2 = 0.0;
  double eps = 0.0;
  double weight_decay = 0.0;     // Adam: g += weight_decay p
  double shrink = 1.0;           // AdamW: 1 - lr weight_decay
  double step_size = 0.0;        // lr / (1 - beta1^t)
  double sqrt_correction = 1.0;  // sqrt(1 - beta2^t)
};

// b = momentum b + gain g;  p = p - lr (g, b or, with nesterov, g + momentum b)
// State: with momentum, momentum_buffer.
struct SGDUpdate {
  GradientUse gradient;
  double lr = 0.0;
  double weight_decay = 0.0;
  double momentum = 0.0;
  double gain = 1.0;  // 1 - dampening, but 1 in the first step
  bool nesterov = false;
};

// v = alpha v + (1 - alpha) g g;  a = alpha a + (1 - alpha) g
// q = g / (sqrt(v or v - a a) + eps);  p = p - lr (q or b = momentum b + q)
// State: square_avg; if centered, grad_avg; with momentum, momentum_buffer.
struct RMSpropUpdate {
  GradientUse gradient;
  double lr = 0.0;
  double alpha = 0.0;
  double eps = 0.0;
  double weight_decay = 0.0;
  double momentum = 0.0;
};

// s = s + g g;  p = p - lr g / (sqrt(s) + eps)
// State: sum.
struct AdagradUpdate {
  GradientUse gradient;
  double lr = 0.0;  // after its decay
  double eps = 0.0;
  double weight_decay = 0.0;
};

}  // namespace lockstep::optim
