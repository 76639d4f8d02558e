#include "lockstep/compute/patches.h"

#include <algorithm>

#include "lockstep/base/vectorize.h"
#include "lockstep/compute/lanes.h"

namespace lockstep::compute {
namespace {

// Calls body(in_offset, columns_offset, width) for every row of positions of every element of the
// patches that is inside the input along depth and height, and outside(columns_offset, count) for
// the remaining ones.
template <typename Body, typename Outside>
LOCKSTEP_ALWAYS_INLINE inline void for_rows(const WindowGeometry& g, const Body& body,
                                            const Outside& outside) {
  std::int64_t column = 0;
  const std::int64_t slab = g.out[1] * g.out[2];
  for (std::int64_t c = 0; c < g.planes; ++c) {
    for (std::int64_t kd = 0; kd < g.kernel[0]; ++kd) {
      const Inside d = inside(g, 0, kd);
      for (std::int64_t kh = 0; kh < g.kernel[1]; ++kh) {
        const Inside h = inside(g, 1, kh);
        for (std::int64_t kw = 0; kw < g.kernel[2]; ++kw) {
          const Inside w = inside(g, 2, kw);
          for (std::int64_t od = 0; od < g.out[0]; ++od, column += slab) {
            if (od < d.begin || od >= d.end) {
              outside(column, slab);
              continue;
            }
            const std::int64_t depth = (c * g.in[0] + od * g.stride[0] + d.shift) * g.in[1];
            outside(column, h.begin * g.out[2]);
            for (std::int64_t oh = h.begin; oh < h.end; ++oh) {
              const std::int64_t row = (depth + oh * g.stride[1] + h.shift) * g.in[2] + w.shift;
              body(row, column + oh * g.out[2], w);
            }
            outside(column + h.end * g.out[2], (g.out[1] - h.end) * g.out[2]);
          }
        }
      }
    }
  }
}

// to[i] = from[2 * i]. Reads nothing after the last of these elements.
LOCKSTEP_ALWAYS_INLINE inline void copy_every_second(const float* from, std::int64_t count,
                                                     float* to) {
  using Eight = Lanes<8>::Floats;
  using Four = Lanes<4>::Floats;
  if (count >= 8) {
    for (std::int64_t next = 0; next < count; next += 8) {
      const std::int64_t i = std::min(next, count - 8);
      const auto a = load<Eight>(from + 2 * i);
      const auto b = load<Eight>(from + 2 * i + 7);
      store(Eight(__builtin_shufflevector(a, b, 0, 2, 4, 6, 9, 11, 13, 15)), to + i);
    }
  } else if (count >= 4) {
    for (std::int64_t next = 0; next < count; next += 4) {
      const std::int64_t i = std::min(next, count - 4);
      const auto a = load<Four>(from + 2 * i);
      const auto b = load<Four>(from + 2 * i + 3);
      store(Four(__builtin_shufflevector(a, b, 0, 2, 5, 7)), to + i);
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[2 * i];
  }
}

struct GatherLoop {
  const float* in;
  float* columns;

  LOCKSTEP_ALWAYS_INLINE void operator()(const WindowGeometry& g) const {
    const float* __restrict const from_all = in;
    float* __restrict const to_all = columns;
    const std::int64_t stride = g.stride[2];
    const std::int64_t width = g.out[2];
    for_rows(
        g,
        [=](std::int64_t row, std::int64_t column, const Inside& w) LOCKSTEP_ALWAYS_INLINE {
          const float* __restrict const from = from_all + row;
          float* __restrict const to = to_all + column;
          for (std::int64_t ow = 0; ow < w.begin; ++ow) to[ow] = 0.0F;
          if (stride == 1) {
            for (std::int64_t ow = w.begin; ow < w.end; ++ow) to[ow] = from[ow];
          } else if (stride == 2) {
            copy_every_second(from + 2 * w.begin, w.end - w.begin, to + w.begin);
          } else {
            for (std::int64_t ow = w.begin; ow < w.end; ++ow) to[ow] = from[stride * ow];
          }
          for (std::int64_t ow = w.end; ow < width; ++ow) to[ow] = 0.0F;
        },
        [=](std::int64_t column, std::int64_t count)
            LOCKSTEP_ALWAYS_INLINE { std::fill_n(to_all + column, count, 0.0F); });
  }
};

struct ScatterLoop {
  const float* columns;
  float* in;

  LOCKSTEP_ALWAYS_INLINE void operator()(const WindowGeometry& g) const {
    const float* __restrict const from_all = columns;
    float* __restrict const to_all = in;
    const std::int64_t stride = g.stride[2];
    std::fill_n(to_all, g.planes * g.in_size(), 0.0F);
    for_rows(
        g,
        [=](std::int64_t row, std::int64_t column, const Inside& w) LOCKSTEP_ALWAYS_INLINE {
          const float* __restrict const from = from_all + column;
          float* __restrict const to = to_all + row;
          for (std::int64_t ow = w.begin; ow < w.end; ++ow) to[stride * ow] = from[ow];
        },
        [](std::int64_t, std::int64_t) {});
  }
};

}  // namespace

void gather_patches(const WindowGeometry& geometry, const float* in, float* columns) {
  run_best(GatherLoop{in, columns}, geometry);
}

void scatter_patches(const WindowGeometry& geometry, const float* columns, float* in) {
  run_best(ScatterLoop{columns, in}, geometry);
}

}  // namespace lockstep::compute
