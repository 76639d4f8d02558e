#include "lockstep/optim/kernels.h"

#include "lockstep/base/vectorize.h"
#include "lockstep/optim/update_formulas.h"

namespace lockstep::optim::kernels {
namespace {

template <typename T, typename Formula>
struct UpdateLoop {
  const Formula& formula;
  const Arrays<T>& arrays;

  LOCKSTEP_ALWAYS_INLINE void operator()(const IndexRange& range) const {
    const Formula element = formula;  // a copy, so that no write to an array can change it
    T* __restrict values = arrays.values;
    T* __restrict grads = arrays.grads;
    T* __restrict first = arrays.state[0];
    T* __restrict second = arrays.state[1];
    T* __restrict third = arrays.state[2];
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      element(values, grads, first, second, third, i);
    }
  }
};

template <typename T>
struct SquaresLoop {
  const T* data;
  double& result;

  LOCKSTEP_ALWAYS_INLINE void operator()(const IndexRange& range) const {
    // The 16 sums are independent of each other, so they fit into vector registers.
    constexpr int kLanes = 16;
    double lanes[kLanes] = {};
    std::int64_t i = range.begin;
    for (; i + kLanes <= range.end; i += kLanes) {
      for (int k = 0; k < kLanes; ++k) {
        const double x = static_cast<double>(data[i + k]);
        lanes[k] += x * x;
      }
    }
    for (int k = 0; i < range.end; ++i, ++k) {
      const double x = static_cast<double>(data[i]);
      lanes[k] += x * x;
    }
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int k = 0; k < half; ++k) lanes[k] += lanes[k + half];
    }
    result = lanes[0];
  }
};

template <typename T, typename Update>
void apply_update(const Update& update, const Arrays<T>& arrays, const IndexRange& range) {
  with_formula<T>(update, arrays.state, [&]<typename Formula>(const Formula& formula) {
    run_best(UpdateLoop<T, Formula>{formula, arrays}, range);
  });
}

template <typename T>
double sum_squares(const T* data, std::int64_t size) {
  double result = 0.0;
  run_best(SquaresLoop<T>{data, result}, IndexRange{0, size});
  return result;
}

}  // namespace

void apply(const AdamUpdate& update, const Arrays<float>& arrays, IndexRange range) {
  apply_update(update, arrays, range);
}

void apply(const AdamUpdate& update, const Arrays<double>& arrays, IndexRange range) {
  apply_update(update, arrays, range);
}

void apply(const SGDUpdate& update, const Arrays<float>& arrays, IndexRange range) {
  apply_update(update, arrays, range);
}

void apply(const SGDUpdate& update, const Arrays<double>& arrays, IndexRange range) {
  apply_update(update, arrays, range);
}

void apply(const RMSpropUpdate& update, const Arrays<float>& arrays, IndexRange range) {
  apply_update(update, arrays, range);
}

void apply(const RMSpropUpdate& update, const Arrays<double>& arrays, IndexRange range) {
  apply_update(update, arrays, range);
}

void apply(const AdagradUpdate& update, const Arrays<float>& arrays, IndexRange range) {
  apply_update(update, arrays, range);
}

void apply(const AdagradUpdate& update, const Arrays<double>& arrays, IndexRange range) {
  apply_update(update, arrays, range);
}

double sum_of_squares(const float* data, std::int64_t size) {
  return sum_squares(data, size);
}

double sum_of_squares(const double* data, std::int64_t size) {
  return sum_squares(data, size);
}

}  // namespace lockstep::optim::kernels
