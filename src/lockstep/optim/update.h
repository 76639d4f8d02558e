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

// m and v as in AdamUpdate
// p = p - step_size (m / (sqrt(v) + eps) or, if not rectified, m)
// State: exp_avg, exp_avg_sq.
struct RAdamUpdate {
  GradientUse gradient;
  double beta1 = 0.0;
  double beta2 = 0.0;
  double eps = 0.0;
  double weight_decay = 0.0;
  double step_size = 0.0;  // lr / (1 - beta1^t); if rectified, times rectification and correction
  bool rectified = true;   // the variance of v is known well enough
};

// m and v as in AdamUpdate;  d = sqrt(v / correction) + eps
// p = p - gradient_size g / d - momentum_size m / d
// State: exp_avg, exp_avg_sq.
struct NAdamUpdate {
  GradientUse gradient;
  double beta1 = 0.0;
  double beta2 = 0.0;
  double eps = 0.0;
  double weight_decay = 0.0;
  double correction = 1.0;     // 1 - beta2^t
  double gradient_size = 0.0;  // lr (1 - mu_t) / (1 - mu_1 … mu_t)
  double momentum_size = 0.0;  // lr mu_t+1 / (1 - mu_1 … mu_t+1)
};

// m as in AdamUpdate;  u = max(beta2 u, |g| + eps);  p = p - step_size m / u
// State: exp_avg, exp_inf.
struct AdamaxUpdate {
  GradientUse gradient;
  double beta1 = 0.0;
  double beta2 = 0.0;
  double eps = 0.0;
  double weight_decay = 0.0;
  double step_size = 0.0;  // lr / (1 - beta1^t)
};

// v = rho v + (1 - rho) g g;  d = sqrt(a + eps) / sqrt(v + eps) g
// a = rho a + (1 - rho) d d;  p = p - lr d
// State: square_avg, acc_delta.
struct AdadeltaUpdate {
  GradientUse gradient;
  double lr = 0.0;
  double rho = 0.0;
  double eps = 0.0;
  double weight_decay = 0.0;
};

// p = shrink p - lr sign(beta1 m + (1 - beta1) g);  m = beta2 m + (1 - beta2) g
// State: exp_avg.
struct LionUpdate {
  GradientUse gradient;
  double lr = 0.0;
  double beta1 = 0.0;
  double beta2 = 0.0;
  double shrink = 1.0;  // 1 - lr weight_decay
};

// The first pass of Lamb: m and v as in AdamUpdate.
// State of both passes: exp_avg, exp_avg_sq.
struct LambMoments {
  GradientUse gradient;
  double beta1 = 0.0;
  double beta2 = 0.0;
};

// The second pass: p = p - step_size u, u = (m / correction1) / (sqrt(v / correction2) + eps) +
// weight_decay p. The step size depends on the norms of p and u (LambSquares) of a whole parameter,
// so it is known only after the first pass over all of it. On a GPU the factor that depends on them
// stays there: Arrays::factor.
struct LambUpdate {
  double eps = 0.0;
  double weight_decay = 0.0;
  double correction1 = 1.0;  // 1 - beta1^t, or 1
  double correction2 = 1.0;  // 1 - beta2^t, or 1
  double step_size = 0.0;
};

// Sums of squares over some elements, for LambUpdate.
struct LambSquares {
  double values = 0.0;   // of p
  double updates = 0.0;  // of u
};

// s = s + alpha (p - s);  p = s
// State: the slow weights s.
struct LookaheadUpdate {
  double alpha = 0.0;
};

// All updates: LOCKSTEP_FOR_EACH_UPDATE(X) is X(AdamUpdate) X(SGDUpdate) … . The files that compile
// one function per update use this list, so that an update is named only here.
#define LOCKSTEP_FOR_EACH_UPDATE(X) \
  X(AdamUpdate)                     \
  X(SGDUpdate)                      \
  X(RMSpropUpdate)                  \
  X(AdagradUpdate)                  \
  X(RAdamUpdate)                    \
  X(NAdamUpdate)                    \
  X(AdamaxUpdate)                   \
  X(AdadeltaUpdate)                 \
  X(LionUpdate)                     \
  X(LambMoments)                    \
  X(LambUpdate)                     \
  X(LookaheadUpdate)

}  // namespace lockstep::optim
