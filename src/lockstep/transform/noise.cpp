#include "lockstep/transform/noise.h"

#include <cmath>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"
#include "lockstep/transform/layout.h"
#include "lockstep/transform/options.h"
#include "lockstep/transform/pad.h"
#include "lockstep/transform/resample_kernels.h"

namespace lockstep::data {
namespace {

void check_kernel_size(std::string_view owner, std::int64_t size) {
  if (size < 1 || size % 2 == 0) {
    throw ConfigError("{}: kernel_size: expected an odd positive number, got {}", owner, size);
  }
}

std::vector<float> gaussian_kernel(const BlurParameters& parameters) {
  const double middle = static_cast<double>(parameters.kernel_size - 1) / 2;
  std::vector<double> kernel;
  double sum = 0;
  for (std::int64_t i = 0; i < parameters.kernel_size; ++i) {
    const double x = (static_cast<double>(i) - middle) / parameters.sigma;
    kernel.push_back(std::exp(-0.5 * x * x));
    sum += kernel.back();
  }
  std::vector<float> normalised;
  for (const double value : kernel) normalised.push_back(static_cast<float>(value / sum));
  return normalised;
}

// Each output is made of the `kernel` inputs from its own place on.
AxisWeights<float> sliding_weights(const std::vector<float>& kernel, std::int64_t outputs) {
  AxisWeights<float> weights;
  weights.room = static_cast<std::int64_t>(kernel.size());
  for (std::int64_t i = 0; i < outputs; ++i) {
    weights.inputs.push_back({.first = i, .count = weights.room});
    weights.weights.insert(weights.weights.end(), kernel.begin(), kernel.end());
  }
  return weights;
}

// `planes` is [C, H, W] float32 with the mirrored parts around it.
torch::Tensor blur_planes(const torch::Tensor& planes, const std::vector<float>& kernel) {
  const auto more = static_cast<std::int64_t>(kernel.size()) - 1;
  const std::int64_t height = planes.size(1) - more;
  const std::int64_t width = planes.size(2) - more;
  const AxisWeights<float> columns = sliding_weights(kernel, width);
  const AxisWeights<float> rows = sliding_weights(kernel, height);
  torch::Tensor between = torch::empty({planes.size(1), width}, torch::kFloat32);
  torch::Tensor result = torch::empty({planes.size(0), height, width}, torch::kFloat32);
  for (std::int64_t c = 0; c < planes.size(0); ++c) {
    resample_rows({.from = planes.data_ptr<float>() + c * planes.size(1) * planes.size(2),
                   .from_stride = planes.size(2),
                   .rows = planes.size(1),
                   .to = between.data_ptr<float>(),
                   .to_stride = width},
                  columns);
    resample_columns({.from = between.data_ptr<float>(),
                      .from_stride = width,
                      .width = width,
                      .to = result.data_ptr<float>() + c * height * width,
                      .to_stride = width},
                     rows);
  }
  return result;
}

}  // namespace

torch::Tensor gaussian_blur(const torch::Tensor& image, const BlurParameters& parameters) {
  const ImageLayout layout = layout_of(image, "GaussianBlur");
  check_on_cpu(image, "GaussianBlur");
  check_kernel_size("GaussianBlur", parameters.kernel_size);
  Check("GaussianBlur").positive("sigma", parameters.sigma);
  const bool bytes = image.scalar_type() == torch::kUInt8;
  if (!bytes && !image.is_floating_point()) {
    throw DataError("GaussianBlur: expected bytes or floats, got {}", describe(image));
  }
  const std::int64_t half = parameters.kernel_size / 2;
  const torch::Tensor padded =
      pad_image(image, {.left = half, .top = half, .right = half, .bottom = half}, {0},
                PaddingMode::kReflect);
  const torch::Tensor planes = image.dim() == 2        ? padded.unsqueeze(0)
                               : layout.channels_first ? padded
                                                       : padded.permute({2, 0, 1});
  torch::Tensor blurred =
      blur_planes(planes.to(torch::kFloat32).contiguous(), gaussian_kernel(parameters));
  if (bytes) blurred.round_();
  if (image.dim() == 2) {
    blurred = blurred[0];
  } else if (!layout.channels_first) {
    blurred = blurred.permute({1, 2, 0}).contiguous();
  }
  return blurred.to(image.scalar_type());
}

GaussianBlur::GaussianBlur(GaussianBlurOptions options) : options_(std::move(options)) {
  check_kernel_size("GaussianBlur", options_.kernel_size);
  if (options_.sigma.size() == 1) options_.sigma.push_back(options_.sigma[0]);
  const Range sigma = read_range("GaussianBlur", "sigma", options_.sigma);
  Check("GaussianBlur").positive("sigma", sigma.low);
}

torch::Tensor GaussianBlur::apply(const torch::Tensor& sample, Draw& draw) const {
  const double sigma = draw.random.uniform(options_.sigma[0], options_.sigma[1]);
  if (draw.is_mask) return sample;
  return gaussian_blur(sample, {.kernel_size = options_.kernel_size, .sigma = sigma});
}

GaussianNoise::GaussianNoise(const GaussianNoiseOptions& options) : options_(options) {
  Check("GaussianNoise").positive("std", options.std);
}

torch::Tensor GaussianNoise::apply(const torch::Tensor& sample, Draw& draw) const {
  if (draw.is_mask) {
    draw.random.bits();  // as many as for an image
    return sample;
  }
  const at::Generator generator = draw.random.generator();
  if (!sample.is_floating_point()) {
    throw DataError("GaussianNoise: expected floats, got {}; put it after ToTensor",
                    describe(sample));
  }
  return sample + options_.std * torch::randn(sample.sizes(), generator, sample.options());
}

torch::Tensor GaussianNoise::apply(const torch::Tensor& batch) const {
  return batch + options_.std * torch::randn_like(batch);
}

torch::Tensor erase(const torch::Tensor& image, const Rectangle& rectangle,
                    const torch::Tensor& value) {
  if (image.dim() != 3 || !image.is_floating_point()) {
    throw DataError("RandomErasing: expected floats [C, H, W], got {}; put it after ToTensor",
                    describe(image));
  }
  const auto& [top, left, height, width] = rectangle;
  if (top < 0 || left < 0 || height < 0 || width < 0 || top + height > image.size(1) ||
      left + width > image.size(2)) {
    throw DataError(
        "RandomErasing: expected a rectangle inside {}, got {} x {} (height x width) from "
        "({}, {}) on",
        describe(image), height, width, top, left);
  }
  torch::Tensor result = image.clone();
  result.narrow(1, top, height).narrow(2, left, width).copy_(value);
  return result;
}

RandomErasing::RandomErasing(RandomErasingOptions options) : options_(std::move(options)) {
  check_probability("RandomErasing", options_.probability);
  const Check check("RandomErasing");
  const Range scale = read_range("RandomErasing", "scale", options_.scale);
  check.fraction("scale", scale.low);
  check.fraction("scale", scale.high);
  check.positive("ratio", read_range("RandomErasing", "ratio", options_.ratio).low);
  if (options_.value.empty()) {
    throw ConfigError("RandomErasing: value: expected at least one, got none");
  }
}

torch::Tensor RandomErasing::apply(const torch::Tensor& sample, Draw& draw) const {
  SampleRandom& random = draw.random;
  if (!random.chance(options_.probability)) return sample;
  const ImageSize size = image_size(sample);
  const auto& [probability, scale, ratio, value, noise] = options_;
  const double area = static_cast<double>(size.height) * static_cast<double>(size.width);
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    const double part = area * random.uniform(scale[0], scale[1]);
    const double shape = std::exp(random.uniform(std::log(ratio[0]), std::log(ratio[1])));
    const auto height = static_cast<std::int64_t>(std::nearbyint(std::sqrt(part * shape)));
    const auto width = static_cast<std::int64_t>(std::nearbyint(std::sqrt(part / shape)));
    if (height >= size.height || width >= size.width) continue;
    const Rectangle rectangle{.top = random.below(size.height - height + 1),
                              .left = random.below(size.width - width + 1),
                              .height = height,
                              .width = width};
    const std::int64_t channels = sample.dim() == 3 ? sample.size(0) : 1;
    if (noise && !draw.is_mask) {
      return erase(sample, rectangle,
                   torch::randn({channels, height, width}, random.generator(), torch::kFloat32));
    }
    random.bits();  // as many as with noise, because a generator takes some microseconds to make
    if (draw.is_mask) return sample;
    return erase(
        sample, rectangle,
        torch::tensor(per_channel("RandomErasing: value", value, channels)).view({-1, 1, 1}));
  }
  return sample;
}

}  // namespace lockstep::data
