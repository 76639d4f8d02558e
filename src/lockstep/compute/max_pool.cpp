#include "lockstep/compute/max_pool.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "lockstep/base/vectorize.h"
#include "lockstep/compute/lanes.h"
#include "lockstep/compute/parallel.h"

namespace lockstep::compute {
namespace {

// The smallest amount of work for a thread, in elements of the input.
constexpr std::int64_t kGrain = 64 * 1024;

// A row of the input under a row of outputs, with the index in the window of its first element.
struct TapRow {
  std::int64_t row;  // of the plane
  int first_tap;
};

// What is the same for all planes.
struct MaxPoolPlan {
  const WindowGeometry& geometry;
  std::vector<Inside> columns;                // for each kw
  std::vector<std::vector<TapRow>> tap_rows;  // for each row of outputs
  std::vector<std::int32_t> first_inside;     // for each column of outputs: its first kw inside
  Inside whole_pairs{};  // outputs along the width whose windows are inside; only if `pairs`
  bool pairs;            // windows are two elements wide and adjacent
  bool separate;         // no element is in two windows
  bool covers;           // every element is in a window

  explicit MaxPoolPlan(const WindowGeometry& g) : geometry(g) {
    for (std::int64_t kw = 0; kw < g.kernel[2]; ++kw) columns.push_back(inside(g, 2, kw));
    for (std::int64_t od = 0; od < g.out[0]; ++od) {
      for (std::int64_t oh = 0; oh < g.out[1]; ++oh) tap_rows.push_back(rows_under(od, oh));
    }
    for (std::int64_t ow = 0; ow < g.out[2]; ++ow) {
      const std::int64_t outside = std::max<std::int64_t>(0, g.padding[2] - ow * g.stride[2]);
      first_inside.push_back(
          static_cast<std::int32_t>((outside + g.dilation[2] - 1) / g.dilation[2]));
    }
    pairs = g.kernel[2] == 2 && g.stride[2] == 2 && g.dilation[2] == 1;
    if (pairs) {
      whole_pairs = {std::max(columns[0].begin, columns[1].begin),
                     std::min(columns[0].end, columns[1].end), -g.padding[2]};
    }
    separate = g.are_separate();
    covers = true;
    for (std::size_t d = 0; d < 3; ++d) {
      covers = covers && g.dilation[d] == 1 && g.stride[d] == g.kernel[d] &&
               g.out[d] * g.stride[d] - g.padding[d] >= g.in[d];
    }
  }

  // Whether a row of outputs has that many windows of two that are inside the input.
  bool vectors(std::int64_t lanes) const {
    return pairs && whole_pairs.end - whole_pairs.begin >= lanes;
  }

 private:
  std::vector<TapRow> rows_under(std::int64_t od, std::int64_t oh) const {
    const WindowGeometry& g = geometry;
    std::vector<TapRow> rows;
    for (std::int64_t kd = 0; kd < g.kernel[0]; ++kd) {
      const std::int64_t d = od * g.stride[0] - g.padding[0] + kd * g.dilation[0];
      if (d < 0 || d >= g.in[0]) continue;
      for (std::int64_t kh = 0; kh < g.kernel[1]; ++kh) {
        const std::int64_t h = oh * g.stride[1] - g.padding[1] + kh * g.dilation[1];
        if (h < 0 || h >= g.in[1]) continue;
        rows.push_back({d * g.in[1] + h, static_cast<int>((kd * g.kernel[1] + kh) * g.kernel[2])});
      }
    }
    return rows;
  }
};

struct PlaneRange {
  std::int64_t begin;
  std::int64_t end;
};

// Updates the maximum so far and the index of its element.
LOCKSTEP_ALWAYS_INLINE inline void take_greater(float value, std::int32_t tap, float& best,
                                                std::int32_t& chosen) {
  const bool take = (value > best) | (value != value);
  best = take ? value : best;
  chosen = take ? tap : chosen;
}

struct ForwardLoop {
  const MaxPoolPlan& plan;
  const PoolForward& pass;

  LOCKSTEP_ALWAYS_INLINE void operator()(const PlaneRange& range) const {
    const WindowGeometry& g = plan.geometry;
    const std::int64_t width = g.out[2];
    std::vector<std::int32_t> scratch(static_cast<std::size_t>(width));
    std::int32_t* __restrict const chosen = scratch.data();
    for (std::int64_t plane = range.begin; plane < range.end; ++plane) {
      const float* const in = pass.in + plane * g.in_size();
      for (std::size_t row = 0; row < plan.tap_rows.size(); ++row) {
        const auto& taps = plan.tap_rows[row];
        const std::int64_t at = plane * g.out_size() + static_cast<std::int64_t>(row) * width;
        float* __restrict const best = pass.out + at;
        if (pass.relu) {
          std::fill_n(best, width, 0.0F);
          std::fill_n(chosen, width, std::int32_t{kNoneChosen});
        } else {
          const int first = taps.empty() ? 0 : taps[0].first_tap;
          std::fill_n(best, width, -std::numeric_limits<float>::infinity());
          for (std::int64_t ow = 0; ow < width; ++ow) {
            chosen[ow] = first + plan.first_inside[static_cast<std::size_t>(ow)];
          }
        }
        for (const TapRow& tap : taps) one_row(in + tap.row * g.in[2], tap.first_tap, best, chosen);
        if (pass.chosen == nullptr) continue;
        Chosen* __restrict const to = pass.chosen + at;
        for (std::int64_t ow = 0; ow < width; ++ow) to[ow] = static_cast<Chosen>(chosen[ow]);
      }
    }
  }

 private:
  LOCKSTEP_ALWAYS_INLINE void one_row(const float* __restrict row, std::int32_t tap,
                                      float* __restrict best,
                                      std::int32_t* __restrict chosen) const {
    const WindowGeometry& g = plan.geometry;
    for (std::int64_t kw = 0; kw < g.kernel[2]; ++kw) {
      const auto [begin, end, shift] = plan.columns[static_cast<std::size_t>(kw)];
      const float* __restrict const from = row + shift;
      for (std::int64_t ow = begin; ow < end; ++ow) {
        take_greater(from[ow * g.stride[2]], tap + static_cast<std::int32_t>(kw), best[ow],
                     chosen[ow]);
      }
    }
  }
};

// No element is in two windows, so each is written once and nothing is added.
struct SeparateBackwardLoop {
  const MaxPoolPlan& plan;
  const PoolBackward& pass;

  LOCKSTEP_ALWAYS_INLINE void operator()(const PlaneRange& range) const {
    const WindowGeometry& g = plan.geometry;
    const std::int64_t width = g.out[2];
    for (std::int64_t plane = range.begin; plane < range.end; ++plane) {
      float* const grad_in = pass.grad_in + plane * g.in_size();
      if (!plan.covers) std::fill_n(grad_in, g.in_size(), 0.0F);
      for (std::size_t row = 0; row < plan.tap_rows.size(); ++row) {
        const std::int64_t at = plane * g.out_size() + static_cast<std::int64_t>(row) * width;
        for (const TapRow& tap : plan.tap_rows[row]) {
          one_row(pass.grad_out + at, pass.chosen + at, tap.first_tap, grad_in + tap.row * g.in[2]);
        }
      }
    }
  }

 private:
  LOCKSTEP_ALWAYS_INLINE void one_row(const float* __restrict grad, const Chosen* __restrict chosen,
                                      int tap, float* __restrict row) const {
    const WindowGeometry& g = plan.geometry;
    for (std::int64_t kw = 0; kw < g.kernel[2]; ++kw) {
      const auto [begin, end, shift] = plan.columns[static_cast<std::size_t>(kw)];
      float* __restrict const to = row + shift;
      for (std::int64_t ow = begin; ow < end; ++ow) {
        to[ow * g.stride[2]] = chosen[ow] == tap + kw ? grad[ow] : 0.0F;
      }
    }
  }
};

// Windows of two along the width, kWidth of them at a time, in registers. If their number is not a
// multiple of kWidth, some windows at the end of a row are computed twice. Windows that reach out
// of the input are computed one by one.
template <int kWidth>
struct PairForwardLoop {
  using Floats = typename Lanes<kWidth>::Floats;
  using Ints = typename Lanes<kWidth>::Ints;
  using Bytes = typename Lanes<kWidth>::Bytes;

  const MaxPoolPlan& plan;
  const PoolForward& pass;

  LOCKSTEP_ALWAYS_INLINE void operator()(const PlaneRange& range) const {
    const WindowGeometry& g = plan.geometry;
    const auto [begin, end, shift] = plan.whole_pairs;
    for (std::int64_t plane = range.begin; plane < range.end; ++plane) {
      const float* const in = pass.in + plane * g.in_size() + shift;
      std::int64_t at = plane * g.out_size();
      for (const auto& taps : plan.tap_rows) {
        for (std::int64_t ow = 0; ow < begin; ++ow) one_window(in, taps, ow, at + ow);
        for (std::int64_t next = begin; next < end; next += kWidth) {
          const std::int64_t ow = std::min(next, end - kWidth);
          some_windows(in + 2 * ow, taps, at + ow);
        }
        for (std::int64_t ow = end; ow < g.out[2]; ++ow) one_window(in, taps, ow, at + ow);
        at += g.out[2];
      }
    }
  }

 private:
  float lowest() const { return pass.relu ? 0.0F : -std::numeric_limits<float>::infinity(); }

  LOCKSTEP_ALWAYS_INLINE void some_windows(const float* in, const std::vector<TapRow>& taps,
                                           std::int64_t at) const {
    Floats best = Floats{} + lowest();
    Ints chosen = Ints{} + (pass.relu ? std::int32_t{kNoneChosen} : taps[0].first_tap);
    for (const TapRow& tap : taps) {
      const float* const from = in + tap.row * plan.geometry.in[2];
      const auto a = load<Floats>(from);
      const auto b = load<Floats>(from + kWidth);
      Floats even, odd;
      if constexpr (kWidth == 8) {
        even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
        odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
      } else {
        even = __builtin_shufflevector(a, b, 0, 2, 4, 6);
        odd = __builtin_shufflevector(a, b, 1, 3, 5, 7);
      }
      const Ints take_even = (even > best) | (even != even);
      best = take_even ? even : best;
      chosen = take_even ? Ints{} + tap.first_tap : chosen;
      const Ints take_odd = (odd > best) | (odd != odd);
      best = take_odd ? odd : best;
      chosen = take_odd ? Ints{} + (tap.first_tap + 1) : chosen;
    }
    store(best, pass.out + at);
    if (pass.chosen != nullptr) store(__builtin_convertvector(chosen, Bytes), pass.chosen + at);
  }

  // A window at an edge: one of its two columns is outside.
  LOCKSTEP_ALWAYS_INLINE void one_window(const float* in, const std::vector<TapRow>& taps,
                                         std::int64_t ow, std::int64_t at) const {
    const auto column = static_cast<std::int32_t>(ow < plan.columns[0].begin ? 1 : 0);
    float best = lowest();
    std::int32_t chosen = pass.relu ? std::int32_t{kNoneChosen} : taps[0].first_tap + column;
    for (const TapRow& tap : taps) {
      take_greater(in[tap.row * plan.geometry.in[2] + 2 * ow + column], tap.first_tap + column,
                   best, chosen);
    }
    pass.out[at] = best;
    if (pass.chosen != nullptr) pass.chosen[at] = static_cast<Chosen>(chosen);
  }
};

template <int kWidth>
struct PairBackwardLoop {
  using Floats = typename Lanes<kWidth>::Floats;
  using Ints = typename Lanes<kWidth>::Ints;
  using Bytes = typename Lanes<kWidth>::Bytes;

  const MaxPoolPlan& plan;
  const PoolBackward& pass;

  LOCKSTEP_ALWAYS_INLINE void operator()(const PlaneRange& range) const {
    const WindowGeometry& g = plan.geometry;
    const auto [begin, end, shift] = plan.whole_pairs;
    for (std::int64_t plane = range.begin; plane < range.end; ++plane) {
      float* const grad_in = pass.grad_in + plane * g.in_size();
      if (!plan.covers) std::fill_n(grad_in, g.in_size(), 0.0F);
      float* const shifted = grad_in + shift;
      std::int64_t at = plane * g.out_size();
      for (const auto& taps : plan.tap_rows) {
        for (std::int64_t ow = 0; ow < begin; ++ow) one_window(shifted, taps, ow, at + ow);
        for (std::int64_t next = begin; next < end; next += kWidth) {
          const std::int64_t ow = std::min(next, end - kWidth);
          some_windows(shifted + 2 * ow, taps, at + ow);
        }
        for (std::int64_t ow = end; ow < g.out[2]; ++ow) one_window(shifted, taps, ow, at + ow);
        at += g.out[2];
      }
    }
  }

 private:
  LOCKSTEP_ALWAYS_INLINE void some_windows(float* grad_in, const std::vector<TapRow>& taps,
                                           std::int64_t at) const {
    const auto grad = load<Floats>(pass.grad_out + at);
    const Ints chosen = __builtin_convertvector(load<Bytes>(pass.chosen + at), Ints);
    for (const TapRow& tap : taps) {
      const Floats even = chosen == tap.first_tap ? grad : Floats{};
      const Floats odd = chosen == tap.first_tap + 1 ? grad : Floats{};
      float* const to = grad_in + tap.row * plan.geometry.in[2];
      if constexpr (kWidth == 8) {
        store(__builtin_shufflevector(even, odd, 0, 8, 1, 9, 2, 10, 3, 11), to);
        store(__builtin_shufflevector(even, odd, 4, 12, 5, 13, 6, 14, 7, 15), to + kWidth);
      } else {
        store(__builtin_shufflevector(even, odd, 0, 4, 1, 5), to);
        store(__builtin_shufflevector(even, odd, 2, 6, 3, 7), to + kWidth);
      }
    }
  }

  LOCKSTEP_ALWAYS_INLINE void one_window(float* grad_in, const std::vector<TapRow>& taps,
                                         std::int64_t ow, std::int64_t at) const {
    const int column = ow < plan.columns[0].begin ? 1 : 0;
    for (const TapRow& tap : taps) {
      const bool is_chosen = pass.chosen[at] == tap.first_tap + column;
      grad_in[tap.row * plan.geometry.in[2] + 2 * ow + column] = is_chosen ? pass.grad_out[at] : 0;
    }
  }
};

void scatter(const WindowGeometry& g, const PoolBackward& pass, const PlaneRange& range) {
  for (std::int64_t plane = range.begin; plane < range.end; ++plane) {
    float* const grad_in = pass.grad_in + plane * g.in_size();
    std::fill_n(grad_in, g.in_size(), 0.0F);
    std::int64_t at = plane * g.out_size();
    for (std::int64_t od = 0; od < g.out[0]; ++od) {
      for (std::int64_t oh = 0; oh < g.out[1]; ++oh) {
        for (std::int64_t ow = 0; ow < g.out[2]; ++ow, ++at) {
          const std::int64_t tap = pass.chosen[at];
          if (tap == kNoneChosen) continue;
          const std::int64_t kw = tap % g.kernel[2];
          const std::int64_t kh = tap / g.kernel[2] % g.kernel[1];
          const std::int64_t kd = tap / g.kernel[2] / g.kernel[1];
          const std::int64_t d = od * g.stride[0] - g.padding[0] + kd * g.dilation[0];
          const std::int64_t h = oh * g.stride[1] - g.padding[1] + kh * g.dilation[1];
          const std::int64_t w = ow * g.stride[2] - g.padding[2] + kw * g.dilation[2];
          grad_in[(d * g.in[1] + h) * g.in[2] + w] += pass.grad_out[at];
        }
      }
    }
  }
}

void for_planes(const WindowGeometry& g, const std::function<void(const PlaneRange&)>& body) {
  if (g.planes == 0 || g.in_size() == 0 || g.out_size() == 0) return;
  for_ranges({.size = g.planes, .grain = std::max<std::int64_t>(1, kGrain / g.in_size())},
             [&](std::int64_t begin, std::int64_t end) {
               body({begin, end});
             });
}

}  // namespace

bool can_choose(const WindowGeometry& geometry) {
  return geometry.taps() < kNoneChosen && has_no_empty_window(geometry);
}

void max_pool(const WindowGeometry& geometry, const PoolForward& pass) {
  const MaxPoolPlan plan(geometry);
  for_planes(geometry, [&](const PlaneRange& range) {
    if (plan.vectors(8)) {
      run_best(PairForwardLoop<8>{plan, pass}, range);
    } else if (plan.vectors(4)) {
      run_best(PairForwardLoop<4>{plan, pass}, range);
    } else {
      run_best(ForwardLoop{plan, pass}, range);
    }
  });
}

void max_pool_backward(const WindowGeometry& geometry, const PoolBackward& pass) {
  const MaxPoolPlan plan(geometry);
  for_planes(geometry, [&](const PlaneRange& range) {
    if (plan.separate && plan.vectors(8)) {
      run_best(PairBackwardLoop<8>{plan, pass}, range);
    } else if (plan.separate && plan.vectors(4)) {
      run_best(PairBackwardLoop<4>{plan, pass}, range);
    } else if (plan.separate) {
      run_best(SeparateBackwardLoop{plan, pass}, range);
    } else {
      scatter(geometry, pass, range);
    }
  });
}

}  // namespace lockstep::compute
