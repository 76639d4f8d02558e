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
struct BlendLoop {
  T* values;
  const T* others;
  T weight;

  LOCKSTEP_ALWAYS_INLINE void operator()(const IndexRange& range) const {
    const T factor = weight;  // a copy, so that no write to the array can change it
    T* __restrict to = values;
    const T* __restrict from = others;
    for (std::int64_t i = range.begin; i < range.end; ++i) to[i] += factor * (from[i] - to[i]);
  }
};

template <typename T>
struct LambSquaresLoop {
  const LambUpdate& update;
  const Arrays<T>& arrays;
  LambSquares& result;

  LOCKSTEP_ALWAYS_INLINE void operator()(const IndexRange& range) const {
    const T* __restrict values = arrays.values;
    const T* __restrict exp_avg = arrays.state[0];
    const T* __restrict exp_avg_sq = arrays.state[1];
    const LambDirection<T> direction(update);
    // As in SquaresLoop: independent sums, which fit into vector registers.
    constexpr int kLanes = 8;
    double of_values[kLanes] = {};
    double of_updates[kLanes] = {};
    const auto add = [&](std::int64_t i, int k) __attribute__((always_inline)) {
      const double value = static_cast<double>(values[i]);
      const double u = static_cast<double>(direction(values[i], exp_avg[i], exp_avg_sq[i]));
      of_values[k] += value * value;
      of_updates[k] += u * u;
    };
    std::int64_t i = range.begin;
    for (; i + kLanes <= range.end; i += kLanes) {
      for (int k = 0; k < kLanes; ++k) add(i + k, k);
    }
    for (int k = 0; i < range.end; ++i, ++k) add(i, k);
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int k = 0; k < half; ++k) {
        of_values[k] += of_values[k + half];
        of_updates[k] += of_updates[k + half];
      }
    }
    result = {.values = of_values[0], .updates = of_updates[0]};
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

template <typename T>
LambSquares sum_lamb_squares(const LambUpdate& update, const Arrays<T>& arrays, IndexRange range) {
  LambSquares result;
  run_best(LambSquaresLoop<T>{update, arrays, result}, range);
  return result;
}

template <typename T>
double sum_squares(const T* data, std::int64_t size) {
  double result = 0.0;
  run_best(SquaresLoop<T>{data, result}, IndexRange{0, size});
  return result;
}

}  // namespace

template <typename T, typename Update>
void apply(const Update& update, const Arrays<T>& arrays, IndexRange range) {
  with_formula(update, arrays, [&]<typename Formula>(const Formula& formula) {
    run_best(UpdateLoop<T, Formula>{formula, arrays}, range);
  });
}

#define LOCKSTEP_INSTANTIATE(Update)                                    \
  template void apply(const Update&, const Arrays<float>&, IndexRange); \
  template void apply(const Update&, const Arrays<double>&, IndexRange);
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_INSTANTIATE)
#undef LOCKSTEP_INSTANTIATE

void blend(float* values, const float* others, double weight, IndexRange range) {
  run_best(BlendLoop<float>{values, others, static_cast<float>(weight)}, range);
}

void blend(double* values, const double* others, double weight, IndexRange range) {
  run_best(BlendLoop<double>{values, others, weight}, range);
}

LambSquares lamb_squares(const LambUpdate& update, const Arrays<float>& arrays, IndexRange range) {
  return sum_lamb_squares(update, arrays, range);
}

LambSquares lamb_squares(const LambUpdate& update, const Arrays<double>& arrays, IndexRange range) {
  return sum_lamb_squares(update, arrays, range);
}

double sum_of_squares(const float* data, std::int64_t size) {
  return sum_squares(data, size);
}

double sum_of_squares(const double* data, std::int64_t size) {
  return sum_squares(data, size);
}

}  // namespace lockstep::optim::kernels
