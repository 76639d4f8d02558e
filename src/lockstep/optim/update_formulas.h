// The updates of update.h for one element. Both the kernels of the CPU (kernels.cpp) and those of
// GPUs (cuda_kernels.cu) are loops over these formulas, so they compute the same numbers.
//
// A formula is made once per step: its numbers are computed in double and rounded to the arrays'
// type there, as torch does with the scalars of its operations. It follows the order of PyTorch's
// operations. `values`, `grads` and the states are whole arrays, `i` is the element; a state that
// the update does not use is a null pointer.
//
// This file does not include torch, and nvcc compiles it.
#pragma once

#include <cmath>
#include <cstdint>

#include "lockstep/base/vectorize.h"
#include "lockstep/optim/kernels.h"
#include "lockstep/optim/update.h"

#ifdef __CUDACC__
#define LOCKSTEP_FORMULA __host__ __device__ __forceinline__
#else
#define LOCKSTEP_FORMULA LOCKSTEP_ALWAYS_INLINE
#endif

namespace lockstep::optim::kernels {

template <typename T, bool kAmsgrad>
struct AdamFormula {
  explicit AdamFormula(const AdamUpdate& update)
      : scale(static_cast<T>(update.gradient.scale)),
        weight_decay(static_cast<T>(update.weight_decay)),
        shrink(static_cast<T>(update.shrink)),
        beta1(static_cast<T>(update.beta1)),
        gain1(static_cast<T>(1.0 - update.beta1)),
        beta2(static_cast<T>(update.beta2)),
        gain2(static_cast<T>(1.0 - update.beta2)),
        eps(static_cast<T>(update.eps)),
        step_size(static_cast<T>(update.step_size)),
        sqrt_correction(static_cast<T>(update.sqrt_correction)),
        zero(update.gradient.zero) {}

  LOCKSTEP_FORMULA void operator()(T* values, T* grads, T* exp_avg, T* exp_avg_sq,
                                   [[maybe_unused]] T* max_exp_avg_sq, std::int64_t i) const {
    const T scaled = grads[i] * scale;
    const T value = values[i];
    const T grad = scaled + weight_decay * value;
    const T m = exp_avg[i] * beta1 + gain1 * grad;
    const T v = exp_avg_sq[i] * beta2 + gain2 * grad * grad;
    T second = v;
    if constexpr (kAmsgrad) {
      const T previous = max_exp_avg_sq[i];
      second = v < previous ? previous : v;
      max_exp_avg_sq[i] = second;
    }
    const T denominator = std::sqrt(second) / sqrt_correction + eps;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    values[i] = value * shrink - step_size * m / denominator;
    grads[i] = zero ? T(0) : scaled;
  }

  T scale, weight_decay, shrink, beta1, gain1, beta2, gain2, eps, step_size, sqrt_correction;
  bool zero;
};

template <typename T, bool kMomentum>
struct SGDFormula {
  explicit SGDFormula(const SGDUpdate& update)
      : scale(static_cast<T>(update.gradient.scale)),
        weight_decay(static_cast<T>(update.weight_decay)),
        momentum(static_cast<T>(update.momentum)),
        gain(static_cast<T>(update.gain)),
        lr(static_cast<T>(update.lr)),
        nesterov(update.nesterov),
        zero(update.gradient.zero) {}

  LOCKSTEP_FORMULA void operator()(T* values, T* grads, [[maybe_unused]] T* momentum_buffer, T*, T*,
                                   std::int64_t i) const {
    const T scaled = grads[i] * scale;
    const T value = values[i];
    T direction = scaled + weight_decay * value;
    if constexpr (kMomentum) {
      const T b = momentum_buffer[i] * momentum + gain * direction;
      momentum_buffer[i] = b;
      direction = nesterov ? direction + momentum * b : b;
    }
    values[i] = value - lr * direction;
    grads[i] = zero ? T(0) : scaled;
  }

  T scale, weight_decay, momentum, gain, lr;
  bool nesterov, zero;
};

template <typename T, bool kCentered, bool kMomentum>
struct RMSpropFormula {
  explicit RMSpropFormula(const RMSpropUpdate& update)
      : scale(static_cast<T>(update.gradient.scale)),
        weight_decay(static_cast<T>(update.weight_decay)),
        alpha(static_cast<T>(update.alpha)),
        gain(static_cast<T>(1.0 - update.alpha)),
        eps(static_cast<T>(update.eps)),
        momentum(static_cast<T>(update.momentum)),
        lr(static_cast<T>(update.lr)),
        zero(update.gradient.zero) {}

  LOCKSTEP_FORMULA void operator()(T* values, T* grads, T* square_avg, [[maybe_unused]] T* grad_avg,
                                   [[maybe_unused]] T* momentum_buffer, std::int64_t i) const {
    const T scaled = grads[i] * scale;
    const T value = values[i];
    const T grad = scaled + weight_decay * value;
    T v = square_avg[i] * alpha + gain * grad * grad;
    square_avg[i] = v;
    if constexpr (kCentered) {
      const T a = grad_avg[i] * alpha + gain * grad;
      grad_avg[i] = a;
      v = v - a * a;
      v = v < T(0) ? T(0) : v;  // rounding can make a variance negative
    }
    const T denominator = std::sqrt(v) + eps;
    if constexpr (kMomentum) {
      const T b = momentum_buffer[i] * momentum + grad / denominator;
      momentum_buffer[i] = b;
      values[i] = value - lr * b;
    } else {
      values[i] = value - lr * grad / denominator;
    }
    grads[i] = zero ? T(0) : scaled;
  }

  T scale, weight_decay, alpha, gain, eps, momentum, lr;
  bool zero;
};

template <typename T>
struct AdagradFormula {
  explicit AdagradFormula(const AdagradUpdate& update)
      : scale(static_cast<T>(update.gradient.scale)),
        weight_decay(static_cast<T>(update.weight_decay)),
        eps(static_cast<T>(update.eps)),
        lr(static_cast<T>(update.lr)),
        zero(update.gradient.zero) {}

  LOCKSTEP_FORMULA void operator()(T* values, T* grads, T* sum, T*, T*, std::int64_t i) const {
    const T scaled = grads[i] * scale;
    const T value = values[i];
    const T grad = scaled + weight_decay * value;
    const T s = sum[i] + grad * grad;
    sum[i] = s;
    values[i] = value - lr * grad / (std::sqrt(s) + eps);
    grads[i] = zero ? T(0) : scaled;
  }

  T scale, weight_decay, eps, lr;
  bool zero;
};

template <typename T, bool kRectified>
struct RAdamFormula {
  explicit RAdamFormula(const RAdamUpdate& update)
      : scale(static_cast<T>(update.gradient.scale)),
        weight_decay(static_cast<T>(update.weight_decay)),
        beta1(static_cast<T>(update.beta1)),
        gain1(static_cast<T>(1.0 - update.beta1)),
        beta2(static_cast<T>(update.beta2)),
        gain2(static_cast<T>(1.0 - update.beta2)),
        eps(static_cast<T>(update.eps)),
        step_size(static_cast<T>(update.step_size)),
        zero(update.gradient.zero) {}

  LOCKSTEP_FORMULA void operator()(T* values, T* grads, T* exp_avg, T* exp_avg_sq, T*,
                                   std::int64_t i) const {
    const T scaled = grads[i] * scale;
    const T value = values[i];
    const T grad = scaled + weight_decay * value;
    const T m = exp_avg[i] * beta1 + gain1 * grad;
    const T v = exp_avg_sq[i] * beta2 + gain2 * grad * grad;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    if constexpr (kRectified) {
      values[i] = value - step_size * m / (std::sqrt(v) + eps);
    } else {
      values[i] = value - step_size * m;
    }
    grads[i] = zero ? T(0) : scaled;
  }

  T scale, weight_decay, beta1, gain1, beta2, gain2, eps, step_size;
  bool zero;
};

template <typename T>
struct NAdamFormula {
  explicit NAdamFormula(const NAdamUpdate& update)
      : scale(static_cast<T>(update.gradient.scale)),
        weight_decay(static_cast<T>(update.weight_decay)),
        beta1(static_cast<T>(update.beta1)),
        gain1(static_cast<T>(1.0 - update.beta1)),
        beta2(static_cast<T>(update.beta2)),
        gain2(static_cast<T>(1.0 - update.beta2)),
        eps(static_cast<T>(update.eps)),
        correction(static_cast<T>(update.correction)),
        gradient_size(static_cast<T>(update.gradient_size)),
        momentum_size(static_cast<T>(update.momentum_size)),
        zero(update.gradient.zero) {}

  LOCKSTEP_FORMULA void operator()(T* values, T* grads, T* exp_avg, T* exp_avg_sq, T*,
                                   std::int64_t i) const {
    const T scaled = grads[i] * scale;
    const T value = values[i];
    const T grad = scaled + weight_decay * value;
    const T m = exp_avg[i] * beta1 + gain1 * grad;
    const T v = exp_avg_sq[i] * beta2 + gain2 * grad * grad;
    const T denominator = std::sqrt(v / correction) + eps;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    values[i] = value - gradient_size * grad / denominator - momentum_size * m / denominator;
    grads[i] = zero ? T(0) : scaled;
  }

  T scale, weight_decay, beta1, gain1, beta2, gain2, eps, correction, gradient_size, momentum_size;
  bool zero;
};

template <typename T>
struct AdamaxFormula {
  explicit AdamaxFormula(const AdamaxUpdate& update)
      : scale(static_cast<T>(update.gradient.scale)),
        weight_decay(static_cast<T>(update.weight_decay)),
        beta1(static_cast<T>(update.beta1)),
        gain1(static_cast<T>(1.0 - update.beta1)),
        beta2(static_cast<T>(update.beta2)),
        eps(static_cast<T>(update.eps)),
        step_size(static_cast<T>(update.step_size)),
        zero(update.gradient.zero) {}

  LOCKSTEP_FORMULA void operator()(T* values, T* grads, T* exp_avg, T* exp_inf, T*,
                                   std::int64_t i) const {
    const T scaled = grads[i] * scale;
    const T value = values[i];
    const T grad = scaled + weight_decay * value;
    const T m = exp_avg[i] * beta1 + gain1 * grad;
    const T decayed = exp_inf[i] * beta2;
    const T now = std::abs(grad) + eps;
    const T largest = decayed < now ? now : decayed;
    exp_avg[i] = m;
    exp_inf[i] = largest;
    values[i] = value - step_size * m / largest;
    grads[i] = zero ? T(0) : scaled;
  }

  T scale, weight_decay, beta1, gain1, beta2, eps, step_size;
  bool zero;
};

template <typename T>
struct AdadeltaFormula {
  explicit AdadeltaFormula(const AdadeltaUpdate& update)
      : scale(static_cast<T>(update.gradient.scale)),
        weight_decay(static_cast<T>(update.weight_decay)),
        rho(static_cast<T>(update.rho)),
        gain(static_cast<T>(1.0 - update.rho)),
        eps(static_cast<T>(update.eps)),
        lr(static_cast<T>(update.lr)),
        zero(update.gradient.zero) {}

  LOCKSTEP_FORMULA void operator()(T* values, T* grads, T* square_avg, T* acc_delta, T*,
                                   std::int64_t i) const {
    const T scaled = grads[i] * scale;
    const T value = values[i];
    const T grad = scaled + weight_decay * value;
    const T v = square_avg[i] * rho + gain * grad * grad;
    const T delta = std::sqrt(acc_delta[i] + eps) / std::sqrt(v + eps) * grad;
    square_avg[i] = v;
    acc_delta[i] = acc_delta[i] * rho + gain * delta * delta;
    values[i] = value - lr * delta;
    grads[i] = zero ? T(0) : scaled;
  }

  T scale, weight_decay, rho, gain, eps, lr;
  bool zero;
};

template <typename T>
struct LionFormula {
  explicit LionFormula(const LionUpdate& update)
      : scale(static_cast<T>(update.gradient.scale)),
        beta1(static_cast<T>(update.beta1)),
        gain1(static_cast<T>(1.0 - update.beta1)),
        beta2(static_cast<T>(update.beta2)),
        gain2(static_cast<T>(1.0 - update.beta2)),
        shrink(static_cast<T>(update.shrink)),
        lr(static_cast<T>(update.lr)),
        zero(update.gradient.zero) {}

  LOCKSTEP_FORMULA void operator()(T* values, T* grads, T* exp_avg, T*, T*, std::int64_t i) const {
    const T grad = grads[i] * scale;
    const T m = exp_avg[i];
    const T direction = m * beta1 + gain1 * grad;
    // Not copysign: the sign of zero is zero, and NaN stays NaN.
    const T sign = direction > T(0) ? T(1) : direction < T(0) ? T(-1) : direction;
    exp_avg[i] = m * beta2 + gain2 * grad;
    values[i] = values[i] * shrink - lr * sign;
    grads[i] = zero ? T(0) : grad;
  }

  T scale, beta1, gain1, beta2, gain2, shrink, lr;
  bool zero;
};

template <typename T>
struct LambMomentsFormula {
  explicit LambMomentsFormula(const LambMoments& update)
      : scale(static_cast<T>(update.gradient.scale)),
        beta1(static_cast<T>(update.beta1)),
        gain1(static_cast<T>(1.0 - update.beta1)),
        beta2(static_cast<T>(update.beta2)),
        gain2(static_cast<T>(1.0 - update.beta2)),
        zero(update.gradient.zero) {}

  LOCKSTEP_FORMULA void operator()(T*, T* grads, T* exp_avg, T* exp_avg_sq, T*,
                                   std::int64_t i) const {
    const T grad = grads[i] * scale;
    exp_avg[i] = exp_avg[i] * beta1 + gain1 * grad;
    exp_avg_sq[i] = exp_avg_sq[i] * beta2 + gain2 * grad * grad;
    grads[i] = zero ? T(0) : grad;
  }

  T scale, beta1, gain1, beta2, gain2;
  bool zero;
};

// The direction u of LambUpdate. Both the sums of squares and the second pass compute it, to the
// same bits, so it is not stored.
template <typename T>
struct LambDirection {
  explicit LambDirection(const LambUpdate& update)
      : eps(static_cast<T>(update.eps)),
        weight_decay(static_cast<T>(update.weight_decay)),
        correction1(static_cast<T>(update.correction1)),
        correction2(static_cast<T>(update.correction2)) {}

  LOCKSTEP_FORMULA T operator()(T value, T m, T v) const {
    return m / correction1 / (std::sqrt(v / correction2) + eps) + weight_decay * value;
  }

  T eps, weight_decay, correction1, correction2;
};

template <typename T, bool kHasFactor>
struct LambFormula {
  LambFormula(const LambUpdate& update, const double* given_factor)
      : direction(update), step_size(update.step_size), factor(given_factor) {}

  LOCKSTEP_FORMULA void operator()(T* values, T*, T* exp_avg, T* exp_avg_sq, T*,
                                   std::int64_t i) const {
    double size = step_size;
    if constexpr (kHasFactor) size = step_size * *factor;
    const T value = values[i];
    values[i] = value - static_cast<T>(size) * direction(value, exp_avg[i], exp_avg_sq[i]);
  }

  LambDirection<T> direction;
  double step_size;
  const double* factor;
};

template <typename T>
struct LookaheadFormula {
  explicit LookaheadFormula(const LookaheadUpdate& update) : alpha(static_cast<T>(update.alpha)) {}

  LOCKSTEP_FORMULA void operator()(T* values, T*, T* slow, T*, T*, std::int64_t i) const {
    const T moved = slow[i] + alpha * (values[i] - slow[i]);
    slow[i] = moved;
    values[i] = moved;
  }

  T alpha;
};

// Calls loop(formula) with the formula of the update for these arrays.
template <typename T, typename Loop>
void with_formula(const AdamUpdate& update, const Arrays<T>& arrays, const Loop& loop) {
  if (arrays.state[2] != nullptr) {
    loop(AdamFormula<T, true>(update));
  } else {
    loop(AdamFormula<T, false>(update));
  }
}

template <typename T, typename Loop>
void with_formula(const SGDUpdate& update, const Arrays<T>&, const Loop& loop) {
  if (update.momentum != 0.0) {
    loop(SGDFormula<T, true>(update));
  } else {
    loop(SGDFormula<T, false>(update));
  }
}

template <typename T, typename Loop>
void with_formula(const RMSpropUpdate& update, const Arrays<T>& arrays, const Loop& loop) {
  const bool momentum = update.momentum != 0.0;
  if (arrays.state[1] != nullptr && momentum) {
    loop(RMSpropFormula<T, true, true>(update));
  } else if (arrays.state[1] != nullptr) {
    loop(RMSpropFormula<T, true, false>(update));
  } else if (momentum) {
    loop(RMSpropFormula<T, false, true>(update));
  } else {
    loop(RMSpropFormula<T, false, false>(update));
  }
}

template <typename T, typename Loop>
void with_formula(const AdagradUpdate& update, const Arrays<T>&, const Loop& loop) {
  loop(AdagradFormula<T>(update));
}

template <typename T, typename Loop>
void with_formula(const RAdamUpdate& update, const Arrays<T>&, const Loop& loop) {
  if (update.rectified) {
    loop(RAdamFormula<T, true>(update));
  } else {
    loop(RAdamFormula<T, false>(update));
  }
}

template <typename T, typename Loop>
void with_formula(const NAdamUpdate& update, const Arrays<T>&, const Loop& loop) {
  loop(NAdamFormula<T>(update));
}

template <typename T, typename Loop>
void with_formula(const AdamaxUpdate& update, const Arrays<T>&, const Loop& loop) {
  loop(AdamaxFormula<T>(update));
}

template <typename T, typename Loop>
void with_formula(const AdadeltaUpdate& update, const Arrays<T>&, const Loop& loop) {
  loop(AdadeltaFormula<T>(update));
}

template <typename T, typename Loop>
void with_formula(const LionUpdate& update, const Arrays<T>&, const Loop& loop) {
  loop(LionFormula<T>(update));
}

template <typename T, typename Loop>
void with_formula(const LambMoments& update, const Arrays<T>&, const Loop& loop) {
  loop(LambMomentsFormula<T>(update));
}

template <typename T, typename Loop>
void with_formula(const LambUpdate& update, const Arrays<T>& arrays, const Loop& loop) {
  if (arrays.factor != nullptr) {
    loop(LambFormula<T, true>(update, arrays.factor));
  } else {
    loop(LambFormula<T, false>(update, nullptr));
  }
}

template <typename T, typename Loop>
void with_formula(const LookaheadUpdate& update, const Arrays<T>&, const Loop& loop) {
  loop(LookaheadFormula<T>(update));
}

}  // namespace lockstep::optim::kernels
