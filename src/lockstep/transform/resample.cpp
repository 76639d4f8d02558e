#include "lockstep/transform/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"
#include "lockstep/transform/resample_kernels.h"

namespace lockstep::data {
namespace {

// One axis of a window.
struct Axis {
  std::int64_t begin = 0;    // the pixels that the window touches
  std::int64_t end = 0;      // behind the last of them
  float from = 0;            // the edges of the window, counted from `begin`; floats as in Pillow
  float to = 0;              //
  std::int64_t outputs = 0;  // pixels of the result

  std::int64_t inputs() const { return end - begin; }
  double scale() const { return static_cast<double>(to - from) / static_cast<double>(outputs); }
  bool is_crop() const { return from == 0 && to == outputs && inputs() == outputs; }
};

// Removes the rounding errors of an edge that was computed as a pixel's.
double snap(double edge) {
  constexpr double kRounding = 1e-6;
  const double whole = std::round(edge);
  return std::abs(edge - whole) < kRounding ? whole : edge;
}

struct AxisOptions {
  double first = 0;
  double length = 0;
  std::int64_t outputs = 0;
};

Axis make_axis(const AxisOptions& options) {
  const double from = snap(options.first);
  const double to = snap(options.first + options.length);
  Axis axis{.begin = static_cast<std::int64_t>(std::floor(from)),
            .end = static_cast<std::int64_t>(std::ceil(to)),
            .outputs = options.outputs};
  axis.from = static_cast<float>(from - static_cast<double>(axis.begin));
  axis.to = static_cast<float>(to - static_cast<double>(axis.begin));
  return axis;
}

void check_window(const Window& window, const ImageSize& image) {
  const auto fits = [](double first, double length, std::int64_t pixels) {
    return std::isfinite(first) && std::isfinite(length) && snap(first) >= 0 &&
           snap(first + length) > snap(first) &&
           snap(first + length) <= static_cast<double>(pixels);
  };
  if (!fits(window.top, window.height, image.height) ||
      !fits(window.left, window.width, image.width)) {
    throw DataError(
        "resample: expected a window inside the image of {} x {} (height x width), got {} x {} "
        "from ({}, {}) on",
        image.height, image.width, window.height, window.width, window.top, window.left);
  }
  constexpr std::int64_t kLargest = 1 << 20;
  if (window.size.height < 1 || window.size.width < 1 || window.size.height > kLargest ||
      window.size.width > kLargest) {
    throw DataError("resample: size: expected 1 to {} for height and width, got {} x {}", kLargest,
                    window.size.height, window.size.width);
  }
}

double triangle(double x) {
  return std::max(0.0, 1 - std::abs(x));
}

// Keys' cubic convolution. Pillow and torch's antialias have a = -0.5, torch's interpolate without
// antialias has a = -0.75. Terms are evaluated in Pillow's order.
double cubic(double x, double a) {
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// Weights of each output over all pixels that it covers.
void weigh_antialiased(const Axis& axis, Interpolation interpolation,
                       AxisWeights<double>& weights) {
  const bool bicubic = interpolation == Interpolation::kBicubic;
  const double scale = axis.scale();
  const double filter_scale = std::max(scale, 1.0);
  const double support = (bicubic ? 2.0 : 1.0) * filter_scale;
  weights.room = static_cast<std::int64_t>(std::ceil(support)) * 2 + 1;
  weights.weights.resize(static_cast<std::size_t>(axis.outputs * weights.room));
  const double narrowing = 1.0 / filter_scale;
  for (std::int64_t i = 0; i < axis.outputs; ++i) {
    const double center = axis.from + (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(static_cast<std::int64_t>(center - support + 0.5), 0);
    const auto end = std::min(static_cast<std::int64_t>(center + support + 0.5), axis.inputs());
    double* const weight = weights.weights.data() + i * weights.room;
    double sum = 0;
    for (std::int64_t k = first; k < end; ++k) {
      const double x = (static_cast<double>(k) - center + 0.5) * narrowing;
      weight[k - first] = bicubic ? cubic(x, -0.5) : triangle(x);
      sum += weight[k - first];
    }
    for (std::int64_t k = first; k < end && sum != 0; ++k) weight[k - first] /= sum;
    weights.inputs[static_cast<std::size_t>(i)] = {.first = first, .count = end - first};
  }
}

// Weights of each output over its two or four nearest pixels. Pixels outside of the image have the
// value of its edge.
void weigh_nearest_pixels(const Axis& axis, Interpolation interpolation,
                          AxisWeights<double>& weights) {
  const bool bicubic = interpolation == Interpolation::kBicubic;
  weights.room = bicubic ? 4 : 2;
  weights.weights.assign(static_cast<std::size_t>(axis.outputs * weights.room), 0.0);
  const auto inside = [&](std::int64_t pixel) {
    return std::clamp<std::int64_t>(pixel, 0, axis.inputs() - 1);
  };
  for (std::int64_t i = 0; i < axis.outputs; ++i) {
    const double at = axis.from + (static_cast<double>(i) + 0.5) * axis.scale() - 0.5;
    const auto base = static_cast<std::int64_t>(std::floor(at)) - (bicubic ? 1 : 0);
    const std::int64_t first = inside(base);
    double* const weight = weights.weights.data() + i * weights.room;
    for (std::int64_t k = base; k < base + weights.room; ++k) {
      const double x = static_cast<double>(k) - at;
      weight[inside(k) - first] += bicubic ? cubic(x, -0.75) : triangle(x);
    }
    weights.inputs[static_cast<std::size_t>(i)] = {
        .first = first, .count = inside(base + weights.room - 1) - first + 1};
  }
}

std::int32_t to_weight(double weight, std::int32_t) {
  const double scaled = weight * (1 << kWeightBits);
  return static_cast<std::int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

float to_weight(double weight, float) {
  return static_cast<float>(weight);
}

// Memory that a thread uses again for each image.
struct Scratch {
  AxisWeights<double> exact;
  AxisWeights<std::int32_t> byte_columns;
  AxisWeights<std::int32_t> byte_rows;
  AxisWeights<float> float_columns;
  AxisWeights<float> float_rows;
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> last_row;
  std::vector<float> floats;
  std::vector<std::int64_t> nearest_columns;
};

Scratch& scratch() {
  thread_local Scratch memory;
  return memory;
}

template <typename Weight>
void weigh(const Axis& axis, const Window& window, AxisWeights<Weight>& weights) {
  AxisWeights<double>& exact = scratch().exact;
  exact.inputs.resize(static_cast<std::size_t>(axis.outputs));
  (window.antialias ? weigh_antialiased : weigh_nearest_pixels)(axis, window.interpolation, exact);
  weights.room = exact.room;
  weights.inputs = exact.inputs;
  weights.weights.resize(exact.weights.size());
  // Behind the weights that are used there may be values of an earlier image.
  for (std::int64_t i = 0; i < axis.outputs; ++i) {
    const std::int64_t begin = i * exact.room;
    for (std::int64_t k = begin; k < begin + exact.inputs[static_cast<std::size_t>(i)].count; ++k) {
      weights.weights[static_cast<std::size_t>(k)] =
          to_weight(exact.weights[static_cast<std::size_t>(k)], Weight{});
    }
  }
}

struct Axes {
  Axis rows;     // along the height
  Axis columns;  // along the width
};

// The input rows that the result needs, counted from the first row of the window.
template <typename Weight>
Inputs needed_rows(const AxisWeights<Weight>& weights) {
  const std::int64_t first = weights.inputs.front().first;
  const Inputs& last = weights.inputs.back();
  return {.first = first, .count = last.first + last.count - first};
}

torch::Tensor resample_bytes(const torch::Tensor& image, const ImageLayout& layout,
                             const Axes& axes, const Window& window) {
  Scratch& memory = scratch();
  weigh(axes.rows, window, memory.byte_rows);
  weigh(axes.columns, window, memory.byte_columns);
  const std::int64_t channels = layout.channels;
  const std::int64_t stride = layout.size.width * channels;
  const Inputs needed = needed_rows(memory.byte_rows);
  const std::uint8_t* const from = image.data_ptr<std::uint8_t>() +
                                   (axes.rows.begin + needed.first) * stride +
                                   axes.columns.begin * channels;

  const std::int64_t row_bytes = axes.columns.inputs() * channels;
  constexpr std::int64_t kBehind = 2;  // see ByteRows::last
  memory.last_row.resize(static_cast<std::size_t>(row_bytes + kBehind));
  std::memcpy(memory.last_row.data(), from + (needed.count - 1) * stride,
              static_cast<std::size_t>(row_bytes));

  const std::int64_t out_bytes = window.size.width * channels;
  const std::int64_t between_stride = out_bytes + 1;
  memory.bytes.resize(static_cast<std::size_t>(needed.count * between_stride));
  resample_rows({.from = from,
                 .from_stride = stride,
                 .last = memory.last_row.data(),
                 .rows = needed.count,
                 .channels = channels,
                 .to = memory.bytes.data(),
                 .to_stride = between_stride},
                memory.byte_columns);

  torch::Tensor result =
      image.dim() == 2
          ? torch::empty({window.size.height, window.size.width}, torch::kUInt8)
          : torch::empty({window.size.height, window.size.width, channels}, torch::kUInt8);
  // The weights count rows from the window's first one, and the memory begins at the first that is
  // needed.
  for (Inputs& inputs : memory.byte_rows.inputs) inputs.first -= needed.first;
  resample_columns({.from = memory.bytes.data(),
                    .from_stride = between_stride,
                    .width = out_bytes,
                    .to = result.data_ptr<std::uint8_t>(),
                    .to_stride = out_bytes},
                   memory.byte_rows);
  return result;
}

// `image` is [H, W] or [C, H, W].
torch::Tensor resample_floats(const torch::Tensor& image, const ImageLayout& layout,
                              const Axes& axes, const Window& window) {
  Scratch& memory = scratch();
  weigh(axes.rows, window, memory.float_rows);
  weigh(axes.columns, window, memory.float_columns);
  const Inputs needed = needed_rows(memory.float_rows);
  for (Inputs& inputs : memory.float_rows.inputs) inputs.first -= needed.first;
  memory.floats.resize(static_cast<std::size_t>(needed.count * window.size.width));
  torch::Tensor result =
      image.dim() == 2
          ? torch::empty({window.size.height, window.size.width}, torch::kFloat32)
          : torch::empty({layout.channels, window.size.height, window.size.width}, torch::kFloat32);
  const std::int64_t stride = layout.size.width;
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    const float* const plane = image.data_ptr<float>() + c * layout.size.height * stride;
    resample_rows({.from = plane + (axes.rows.begin + needed.first) * stride + axes.columns.begin,
                   .from_stride = stride,
                   .rows = needed.count,
                   .to = memory.floats.data(),
                   .to_stride = window.size.width},
                  memory.float_columns);
    resample_columns({.from = memory.floats.data(),
                      .from_stride = window.size.width,
                      .width = window.size.width,
                      .to = result.data_ptr<float>() + c * window.size.height * window.size.width,
                      .to_stride = window.size.width},
                     memory.float_rows);
  }
  return result;
}

// As torchvision does it for tensors: in floats, and rounded at the end.
torch::Tensor resample_bytes_as_floats(const torch::Tensor& image, const ImageLayout& layout,
                                       const Axes& axes, const Window& window) {
  const bool has_channels = image.dim() == 3;
  const torch::Tensor floats =
      (has_channels ? image.permute({2, 0, 1}) : image).to(torch::kFloat32).contiguous();
  const torch::Tensor result =
      resample_floats(floats, layout, axes, window).round_().clamp_(0, 255).to(torch::kUInt8);
  return has_channels ? result.permute({1, 2, 0}).contiguous() : result;
}

// The pixel of each output, as Pillow finds it: the middles of outputs are added up.
void find_nearest(const Axis& axis, std::vector<std::int64_t>& pixels) {
  pixels.resize(static_cast<std::size_t>(axis.outputs));
  double at = axis.from + axis.scale() * 0.5;
  for (std::int64_t& pixel : pixels) {
    pixel = std::clamp<std::int64_t>(static_cast<std::int64_t>(at), 0, axis.inputs() - 1);
    at += axis.scale();
  }
}

template <std::size_t kBytes>
void copy_pixels(const char* from, const std::vector<std::int64_t>& pixels, char* to) {
  for (const std::int64_t pixel : pixels) {
    std::memcpy(to, from + static_cast<std::size_t>(pixel) * kBytes, kBytes);
    to += kBytes;
  }
}

void copy_pixels(const char* from, const std::vector<std::int64_t>& pixels, std::size_t bytes,
                 char* to) {
  switch (bytes) {
    case 1:
      return copy_pixels<1>(from, pixels, to);
    case 3:
      return copy_pixels<3>(from, pixels, to);
    case 4:
      return copy_pixels<4>(from, pixels, to);
    case 8:
      return copy_pixels<8>(from, pixels, to);
    default:
      for (const std::int64_t pixel : pixels) {
        std::memcpy(to, from + static_cast<std::size_t>(pixel) * bytes, bytes);
        to += bytes;
      }
  }
}

// Copies values, so the type does not matter.
torch::Tensor resample_nearest(const torch::Tensor& image, const ImageLayout& layout,
                               const Axes& axes, const Window& window) {
  std::vector<std::int64_t>& columns = scratch().nearest_columns;
  find_nearest(axes.columns, columns);
  std::vector<std::int64_t> shape = image.sizes().vec();
  shape[static_cast<std::size_t>(layout.row_dim())] = window.size.height;
  shape[static_cast<std::size_t>(layout.column_dim())] = window.size.width;
  torch::Tensor result = torch::empty(shape, image.options());

  const std::int64_t planes = layout.channels_first ? layout.channels : 1;
  const std::int64_t pixel_bytes = static_cast<std::int64_t>(image.element_size()) *
                                   (layout.channels_first ? 1 : layout.channels);
  const std::int64_t stride = layout.size.width * pixel_bytes;
  const std::int64_t out_stride = window.size.width * pixel_bytes;
  auto* to = static_cast<char*>(result.data_ptr());
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    const char* const from = static_cast<const char*>(image.data_ptr()) +
                             plane * layout.size.height * stride + axes.rows.begin * stride +
                             axes.columns.begin * pixel_bytes;
    double at = axes.rows.from + axes.rows.scale() * 0.5;
    for (std::int64_t y = 0; y < window.size.height; ++y) {
      const auto row =
          std::clamp<std::int64_t>(static_cast<std::int64_t>(at), 0, axes.rows.inputs() - 1);
      copy_pixels(from + row * stride, columns, static_cast<std::size_t>(pixel_bytes), to);
      to += out_stride;
      at += axes.rows.scale();
    }
  }
  return result;
}

}  // namespace

torch::Tensor resample(const torch::Tensor& image, const Window& window) {
  const ImageLayout layout = layout_of(image, "resample");
  check_on_cpu(image, "resample");
  check_window(window, layout.size);
  const Axes axes{
      .rows =
          make_axis({.first = window.top, .length = window.height, .outputs = window.size.height}),
      .columns =
          make_axis({.first = window.left, .length = window.width, .outputs = window.size.width})};
  if (axes.rows.is_crop() && axes.columns.is_crop()) {
    return image.narrow(layout.row_dim(), axes.rows.begin, axes.rows.outputs)
        .narrow(layout.column_dim(), axes.columns.begin, axes.columns.outputs)
        .contiguous();
  }
  const torch::Tensor packed = image.contiguous();
  if (window.interpolation == Interpolation::kNearest) {
    return resample_nearest(packed, layout, axes, window);
  }
  if (image.is_floating_point()) {
    return resample_floats(packed.to(torch::kFloat32), layout, axes, window)
        .to(image.scalar_type());
  }
  if (image.scalar_type() != torch::kUInt8) {
    throw DataError(
        "resample: expected bytes or floats, got {}; other types are resized with nearest only",
        describe(image));
  }
  return window.antialias ? resample_bytes(packed, layout, axes, window)
                          : resample_bytes_as_floats(packed, layout, axes, window);
}

torch::Tensor WindowTransform::apply(const torch::Tensor& sample, Draw& draw) const {
  Window part = window(image_size(sample), draw);
  if (draw.is_mask) part.interpolation = Interpolation::kNearest;
  return resample(sample, part);
}

}  // namespace lockstep::data
