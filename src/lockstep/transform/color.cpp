#include "lockstep/transform/color.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"
#include "lockstep/transform/layout.h"
#include "lockstep/transform/luma.h"
#include "lockstep/transform/options.h"

namespace lockstep::data {
namespace {

using ByteTable = std::array<std::uint8_t, 256>;

ImageLayout layout_of_colours(const torch::Tensor& image, std::string_view owner) {
  const ImageLayout layout = layout_of(image, owner);
  const bool known_type = image.scalar_type() == torch::kUInt8 || image.is_floating_point();
  if (!known_type || (layout.channels != 1 && layout.channels != 3)) {
    throw DataError("{}: expected bytes or floats with 1 or 3 channels, got {}", owner,
                    describe(image));
  }
  // Floats are changed by torch's operations, which work on every device.
  if (!image.is_floating_point()) check_on_cpu(image, owner);
  return layout;
}

ImageLayout layout_of_byte_colours(const torch::Tensor& image, std::string_view owner) {
  if (image.scalar_type() != torch::kUInt8) {
    throw DataError("{}: expected bytes, got {}; put it before ToTensor", owner, describe(image));
  }
  return layout_of_colours(image, owner);
}

void check_factor(std::string_view owner, double factor) {
  if (!(factor >= 0) || !std::isfinite(factor)) {
    throw ConfigError("{}: expected a factor >= 0, got {}", owner, factor);
  }
}

// Pillow's blend: from `base` at 0 over `value` at 1 and beyond it, rounded down.
std::uint8_t blend_bytes(int base, int value, float factor) {
  const float blended = static_cast<float>(base) + factor * static_cast<float>(value - base);
  return static_cast<std::uint8_t>(std::clamp(blended, 0.0F, 255.0F));
}

torch::Tensor blend_floats(const torch::Tensor& base, const torch::Tensor& image, double factor) {
  return (image * factor + base * (1 - factor)).clamp_(0, 1).to(image.scalar_type());
}

torch::Tensor map_bytes(const torch::Tensor& image, const ByteTable& table) {
  const torch::Tensor packed = image.contiguous();
  torch::Tensor result = torch::empty_like(packed);
  const auto* const from = packed.data_ptr<std::uint8_t>();
  auto* const to = result.data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < packed.numel(); ++i) to[i] = table[from[i]];
  return result;
}

// A table per channel, made from the counts of its values.
template <typename MakeTable>
torch::Tensor map_channels(const torch::Tensor& image, std::int64_t channels,
                           const MakeTable& make_table) {
  const torch::Tensor packed = image.contiguous();
  torch::Tensor result = torch::empty_like(packed);
  const auto* const from = packed.data_ptr<std::uint8_t>();
  auto* const to = result.data_ptr<std::uint8_t>();
  for (std::int64_t c = 0; c < channels; ++c) {
    std::array<std::int64_t, 256> counts{};
    for (std::int64_t i = c; i < packed.numel(); i += channels) ++counts[from[i]];
    const ByteTable table = make_table(counts);
    for (std::int64_t i = c; i < packed.numel(); i += channels) to[i] = table[from[i]];
  }
  return result;
}

template <typename MakeByte>
ByteTable table_of(const MakeByte& make_byte) {
  ByteTable table{};
  for (int i = 0; i < 256; ++i) table[static_cast<std::size_t>(i)] = make_byte(i);
  return table;
}

// Calls change(pixel, result) for the three bytes of each pixel.
template <typename Change>
torch::Tensor map_pixels(const torch::Tensor& image, const Change& change) {
  const torch::Tensor packed = image.contiguous();
  torch::Tensor result = torch::empty_like(packed);
  const auto* from = packed.data_ptr<std::uint8_t>();
  auto* to = result.data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < packed.numel(); i += 3) change(from + i, to + i);
  return result;
}

// The mean brightness of bytes, rounded.
int mean_luma(const torch::Tensor& image, std::int64_t channels) {
  const torch::Tensor packed = image.contiguous();
  const auto* const from = packed.data_ptr<std::uint8_t>();
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < packed.numel(); i += channels) {
    sum += channels == 3 ? luma(from + i) : from[i];
  }
  const auto pixels = static_cast<double>(packed.numel() / channels);
  return static_cast<int>(static_cast<double>(sum) / pixels + 0.5);
}

template <typename T>
double mean_of_values(const torch::Tensor& packed) {
  // Several sums, so that an addition need not wait for the one before it.
  std::array<double, 8> sums{};
  const T* const values = packed.data_ptr<T>();
  const std::int64_t count = packed.numel();
  const auto lanes = static_cast<std::int64_t>(sums.size());
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::size_t lane = 0; lane < sums.size(); ++lane) {
      sums[lane] += static_cast<double>(values[i + static_cast<std::int64_t>(lane)]);
    }
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(values[i]);
  return std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(count);
}

// The order of the additions is fixed. That of torch's mean() depends on its number of threads.
double mean_of_floats(const torch::Tensor& values) {
  if (values.scalar_type() == torch::kFloat64) return mean_of_values<double>(values.contiguous());
  return mean_of_values<float>(values.to(torch::kFloat32).contiguous());
}

torch::Tensor luma_of_floats(const torch::Tensor& image) {
  return (0.2989 * image[0] + 0.587 * image[1] + 0.114 * image[2]).unsqueeze(0);
}

struct Hsv {
  std::uint8_t hue = 0;
  std::uint8_t saturation = 0;
  std::uint8_t value = 0;
};

// In the precision of Pillow: floats, and doubles where it has a double among them.
Hsv to_hsv(const std::uint8_t* pixel) {
  const auto [low, high] = std::minmax({pixel[0], pixel[1], pixel[2]});
  if (low == high) return {.value = high};
  const auto span = static_cast<float>(high - low);
  const float saturation = span / static_cast<float>(high);
  const float red = static_cast<float>(high - pixel[0]) / span;
  const float green = static_cast<float>(high - pixel[1]) / span;
  const float blue = static_cast<float>(high - pixel[2]) / span;
  const auto sixth = static_cast<float>(pixel[0] == high   ? blue - green
                                        : pixel[1] == high ? 2.0 + red - blue
                                                           : 4.0 + green - red);
  const auto hue = static_cast<float>(std::fmod(sixth / 6.0 + 1.0, 1.0));
  return {.hue = static_cast<std::uint8_t>(hue * 255.0),
          .saturation = static_cast<std::uint8_t>(saturation * 255.0),
          .value = high};
}

void from_hsv(const Hsv& hsv, std::uint8_t* pixel) {
  if (hsv.saturation == 0) {
    std::fill_n(pixel, 3, hsv.value);
    return;
  }
  const double sixths = static_cast<float>(hsv.hue) * 6.0 / 255.0;
  const auto sector = static_cast<int>(std::floor(sixths));
  const auto rest = static_cast<float>(sixths - static_cast<float>(sector));
  const auto saturation = static_cast<float>(static_cast<float>(hsv.saturation) / 255.0);
  const auto scaled = [&](double part) {
    return static_cast<std::uint8_t>(
        std::clamp(std::round(static_cast<float>(hsv.value) * part), 0.0, 255.0));
  };
  const std::uint8_t v = hsv.value;
  const std::uint8_t p = scaled(1.0 - saturation);
  const std::uint8_t q = scaled(1.0 - saturation * rest);
  const std::uint8_t t = scaled(1.0 - saturation * (1.0 - rest));
  const std::uint8_t sectors[6][3] = {{v, t, p}, {q, v, p}, {p, v, t},
                                      {p, q, v}, {t, p, v}, {v, p, q}};
  std::copy_n(sectors[sector % 6], 3, pixel);
}

torch::Tensor adjust_hue_of_floats(const torch::Tensor& image, double turn) {
  const torch::Tensor high = std::get<0>(image.max(0));
  const torch::Tensor low = std::get<0>(image.min(0));
  const torch::Tensor grey = high == low;
  const torch::Tensor ones = torch::ones_like(high);
  const torch::Tensor span = high - low;
  const torch::Tensor saturation = span / torch::where(grey, ones, high);
  const torch::Tensor distances = (high.unsqueeze(0) - image) / torch::where(grey, ones, span);
  const torch::Tensor sixth =
      torch::where(high == image[0], distances[2] - distances[1],
                   torch::where(high == image[1], 2.0 + distances[0] - distances[2],
                                4.0 + distances[1] - distances[0]));
  const torch::Tensor hue = (torch::fmod(sixth / 6.0 + 1.0, 1.0) + turn).remainder(1.0) * 6.0;
  const torch::Tensor sector = hue.floor();
  const torch::Tensor rest = hue - sector;
  const torch::Tensor p = (high * (1.0 - saturation)).clamp(0, 1);
  const torch::Tensor q = (high * (1.0 - saturation * rest)).clamp(0, 1);
  const torch::Tensor t = (high * (1.0 - saturation * (1.0 - rest))).clamp(0, 1);
  const torch::Tensor which = sector.to(torch::kInt64).remainder(6).unsqueeze(0);
  const auto channel = [&](std::vector<torch::Tensor> by_sector) {
    return torch::stack(by_sector).gather(0, which)[0];
  };
  return torch::stack({channel({high, q, p, p, t, high}), channel({t, high, high, q, p, p}),
                       channel({p, p, t, high, high, q})});
}

// Pillow's SMOOTH: a mean of 3 x 3 pixels in which the middle one counts five times. Pixels at the
// edges stay.
torch::Tensor smooth(const torch::Tensor& image, const ImageLayout& layout) {
  const torch::Tensor packed = image.contiguous();
  torch::Tensor result = packed.clone();
  const auto* const from = packed.data_ptr<std::uint8_t>();
  auto* const to = result.data_ptr<std::uint8_t>();
  const std::int64_t channels = layout.channels;
  const std::int64_t stride = layout.size.width * channels;
  for (std::int64_t y = 1; y + 1 < layout.size.height; ++y) {
    for (std::int64_t i = y * stride + channels; i < (y + 1) * stride - channels; ++i) {
      int sum = 4 * from[i];
      for (const std::int64_t row : {i - stride, i, i + stride}) {
        sum += from[row - channels] + from[row] + from[row + channels];
      }
      to[i] = static_cast<std::uint8_t>((2 * sum + 13) / 26);
    }
  }
  return result;
}

// The ranges of a ColorJitter, in the form {lowest, highest} or empty.
std::vector<double> read_factors(std::string_view field, const std::vector<double>& values) {
  if (values.empty()) return {};
  const Range range = read_range_around("ColorJitter", field, values, 1);
  if (values.size() == 2) Check("ColorJitter").not_negative(field, range.low);
  return {std::max(0.0, range.low), range.high};
}

}  // namespace

torch::Tensor adjust_brightness(const torch::Tensor& image, double factor) {
  layout_of_colours(image, "brightness");
  check_factor("brightness", factor);
  if (image.is_floating_point()) {
    return (image * factor).clamp_(0, 1).to(image.scalar_type());
  }
  return map_bytes(image, table_of([&](int value) {
                     return blend_bytes(0, value, static_cast<float>(factor));
                   }));
}

torch::Tensor adjust_contrast(const torch::Tensor& image, double factor) {
  const ImageLayout layout = layout_of_colours(image, "contrast");
  check_factor("contrast", factor);
  check_on_cpu(image, "contrast");
  if (image.is_floating_point()) {
    const torch::Tensor grey = layout.channels == 3 ? luma_of_floats(image) : image;
    return blend_floats(torch::scalar_tensor(mean_of_floats(grey), image.options()), image, factor);
  }
  const int mean = mean_luma(image, layout.channels);
  return map_bytes(image, table_of([&](int value) {
                     return blend_bytes(mean, value, static_cast<float>(factor));
                   }));
}

torch::Tensor adjust_saturation(const torch::Tensor& image, double factor) {
  const ImageLayout layout = layout_of_colours(image, "saturation");
  check_factor("saturation", factor);
  if (layout.channels == 1) return image;
  if (image.is_floating_point()) return blend_floats(luma_of_floats(image), image, factor);
  return map_pixels(image, [&](const std::uint8_t* from, std::uint8_t* to) {
    const int grey = luma(from);
    for (int c = 0; c < 3; ++c) to[c] = blend_bytes(grey, from[c], static_cast<float>(factor));
  });
}

torch::Tensor adjust_sharpness(const torch::Tensor& image, double factor) {
  const ImageLayout layout = layout_of_byte_colours(image, "sharpness");
  check_factor("sharpness", factor);
  torch::Tensor result = smooth(image, layout);
  const torch::Tensor packed = image.contiguous();
  const auto* const from = packed.data_ptr<std::uint8_t>();
  auto* const to = result.data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < packed.numel(); ++i) {
    to[i] = blend_bytes(to[i], from[i], static_cast<float>(factor));
  }
  return result;
}

torch::Tensor adjust_hue(const torch::Tensor& image, double turn) {
  const ImageLayout layout = layout_of_colours(image, "hue");
  if (!(turn >= -0.5 && turn <= 0.5)) {
    throw ConfigError("hue: expected a turn in [-0.5, 0.5], got {}", turn);
  }
  if (layout.channels == 1) return image;
  if (image.is_floating_point()) return adjust_hue_of_floats(image, turn);
  const auto steps = static_cast<std::uint8_t>(static_cast<int>(turn * 255));
  return map_pixels(image, [&](const std::uint8_t* from, std::uint8_t* to) {
    Hsv hsv = to_hsv(from);
    hsv.hue = static_cast<std::uint8_t>(hsv.hue + steps);  // the circle has 256 steps
    from_hsv(hsv, to);
  });
}

torch::Tensor to_grayscale(const torch::Tensor& image, std::int64_t channels) {
  const ImageLayout layout = layout_of_colours(image, "grayscale");
  if (channels != 1 && channels != 3) {
    throw ConfigError("grayscale: channels: expected 1 or 3, got {}", channels);
  }
  const std::int64_t channel_dim = image.is_floating_point() ? 0 : 2;
  torch::Tensor grey = image.dim() == 2 ? image.unsqueeze(channel_dim) : image;
  if (layout.channels == 3) {
    if (image.is_floating_point()) {
      grey = luma_of_floats(image);
    } else {
      const torch::Tensor packed = image.contiguous();
      grey = torch::empty({layout.size.height, layout.size.width, 1}, torch::kUInt8);
      const auto* const from = packed.data_ptr<std::uint8_t>();
      auto* const to = grey.data_ptr<std::uint8_t>();
      for (std::int64_t i = 0; i < grey.numel(); ++i) {
        to[i] = static_cast<std::uint8_t>(luma(from + 3 * i));
      }
    }
  }
  if (channels == 1) return image.dim() == 2 ? image : grey;
  return grey.repeat_interleave(3, channel_dim);
}

torch::Tensor posterize(const torch::Tensor& image, int bits) {
  layout_of_byte_colours(image, "posterize");
  if (bits < 0 || bits > 8) throw ConfigError("posterize: expected 0 to 8 bits, got {}", bits);
  const int mask = ~((1 << (8 - bits)) - 1);
  return map_bytes(image,
                   table_of([&](int value) { return static_cast<std::uint8_t>(value & mask); }));
}

torch::Tensor solarize(const torch::Tensor& image, double threshold) {
  layout_of_byte_colours(image, "solarize");
  return map_bytes(image, table_of([&](int value) {
                     return static_cast<std::uint8_t>(value < threshold ? value : 255 - value);
                   }));
}

torch::Tensor autocontrast(const torch::Tensor& image) {
  const ImageLayout layout = layout_of_byte_colours(image, "autocontrast");
  return map_channels(image, layout.channels, [](const std::array<std::int64_t, 256>& counts) {
    int low = 0;
    int high = 255;
    while (low < high && counts[static_cast<std::size_t>(low)] == 0) ++low;
    while (high > low && counts[static_cast<std::size_t>(high)] == 0) --high;
    return table_of([&](int value) {
      if (high <= low) return static_cast<std::uint8_t>(value);
      const double scale = 255.0 / (high - low);
      return static_cast<std::uint8_t>(
          std::clamp(static_cast<int>(value * scale + -low * scale), 0, 255));
    });
  });
}

torch::Tensor equalize(const torch::Tensor& image) {
  const ImageLayout layout = layout_of_byte_colours(image, "equalize");
  return map_channels(image, layout.channels, [](const std::array<std::int64_t, 256>& counts) {
    std::int64_t all = 0;
    std::int64_t last = 0;
    for (const std::int64_t count : counts) {
      all += count;
      if (count > 0) last = count;
    }
    // If there is only one value, the step is zero, too.
    const std::int64_t step = (all - last) / 255;
    std::int64_t below = step / 2;
    return table_of([&](int value) {
      if (step == 0) return static_cast<std::uint8_t>(value);
      const std::int64_t level = std::min<std::int64_t>(below / step, 255);
      below += counts[static_cast<std::size_t>(value)];
      return static_cast<std::uint8_t>(level);
    });
  });
}

ColorJitter::ColorJitter(ColorJitterOptions options) : options_(std::move(options)) {
  options_.brightness = read_factors("brightness", options_.brightness);
  options_.contrast = read_factors("contrast", options_.contrast);
  options_.saturation = read_factors("saturation", options_.saturation);
  if (options_.hue.empty()) return;
  const Range turn = read_range_around("ColorJitter", "hue", options_.hue, 0);
  if (turn.low < -0.5 || turn.high > 0.5) {
    throw ConfigError("ColorJitter: hue: expected turns in [-0.5, 0.5], got {} to {}", turn.low,
                      turn.high);
  }
  options_.hue = {turn.low, turn.high};
}

torch::Tensor ColorJitter::apply(const torch::Tensor& sample, Draw& draw) const {
  using Adjust = torch::Tensor (*)(const torch::Tensor&, double);
  struct Step {
    Adjust adjust;
    const std::vector<double>& range;
  };
  const Step steps[] = {{adjust_brightness, options_.brightness},
                        {adjust_contrast, options_.contrast},
                        {adjust_saturation, options_.saturation},
                        {adjust_hue, options_.hue}};
  std::array<std::size_t, 4> order = {0, 1, 2, 3};
  for (std::size_t i = order.size() - 1; i > 0; --i) {
    std::swap(order[i],
              order[static_cast<std::size_t>(draw.random.below(static_cast<std::int64_t>(i + 1)))]);
  }
  torch::Tensor result = sample;
  for (const std::size_t i : order) {
    const auto& [adjust, range] = steps[i];
    if (range.empty()) continue;
    const double factor = draw.random.uniform(range[0], range[1]);
    if (!draw.is_mask) result = adjust(result, factor);
  }
  return result;
}

Grayscale::Grayscale(const GrayscaleOptions& options) : options_(options) {
  if (options.channels != 1 && options.channels != 3) {
    throw ConfigError("Grayscale: channels: expected 1 or 3, got {}", options.channels);
  }
}

torch::Tensor Grayscale::apply(const torch::Tensor& sample, Draw& draw) const {
  return draw.is_mask ? sample : to_grayscale(sample, options_.channels);
}

RandomGrayscale::RandomGrayscale(const RandomGrayscaleOptions& options) : options_(options) {
  check_probability("RandomGrayscale", options.probability);
}

torch::Tensor RandomGrayscale::apply(const torch::Tensor& sample, Draw& draw) const {
  const bool change = draw.random.chance(options_.probability);
  if (!change || draw.is_mask) return sample;
  return layout_of(sample, "RandomGrayscale").channels == 1 ? sample : to_grayscale(sample, 3);
}

}  // namespace lockstep::data
