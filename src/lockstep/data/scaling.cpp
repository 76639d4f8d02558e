#include "lockstep/data/scaling.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/describe.h"

namespace lockstep::data {
namespace {

// Calls change(value, channel) for all values, which are [B, C, points] one after the other. It is
// a plain loop, because a logarithm of torch may differ in the last bit from place to place in a
// tensor.
template <typename T, typename F>
torch::Tensor changed(const torch::Tensor& values, std::int64_t channels, const F& change) {
  const torch::Tensor out = torch::empty(values.sizes(), values.options());
  const std::int64_t points = values.numel() / (values.size(0) * channels);
  const T* from = values.data_ptr<T>();
  T* to = out.data_ptr<T>();
  for (std::int64_t block = 0; block < values.size(0) * channels; ++block) {
    const auto channel = static_cast<std::size_t>(block % channels);
    for (std::int64_t i = 0; i < points; ++i) {
      *to++ = static_cast<T>(change(static_cast<double>(*from++), channel));
    }
  }
  return out;
}

std::string describe_channels(const ChannelScaling& scaling) {
  return fmt::format("{} shift [{}] scale [{}]", name_of(scaling.kind),
                     fmt::join(scaling.shift, ", "), fmt::join(scaling.scale, ", "));
}

}  // namespace

std::string name_of(Normalization kind) {
  return std::ranges::find(kNormalizationNames, kind, &std::pair<Normalization, const char*>::first)
      ->second;
}

Normalization normalization_of(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [kind, text] : kNormalizationNames) {
    if (name == text) return kind;
    names.emplace_back(text);
  }
  throw ConfigError("normalization '{}': there is none of this name; {}", name,
                    suggest(std::string(name), names));
}

void ChannelScaling::check() const {
  const bool is_none = kind == Normalization::kNone;
  if (shift.size() != scale.size() || shift.empty() != is_none) {
    throw ConfigError("scaling ({}): expected {}, got {} and {}", name_of(kind),
                      is_none ? "no shift and no scale" : "a shift and a scale for each channel",
                      shift.size(), scale.size());
  }
  for (std::size_t c = 0; c < shift.size(); ++c) {
    if (std::isfinite(shift[c]) && std::isfinite(scale[c]) && scale[c] != 0) continue;
    throw ConfigError(
        "scaling ({}): channel {}: expected finite numbers and a scale other than 0, got {} and {}",
        name_of(kind), c, shift[c], scale[c]);
  }
}

torch::Tensor ChannelScaling::apply(const torch::Tensor& batch) const {
  if (kind == Normalization::kNone || batch.numel() == 0) return batch;
  const auto channels = static_cast<std::int64_t>(shift.size());
  if (batch.dim() < 2 || batch.size(1) != channels) {
    throw DataError("scaling ({}): expected [B, {}, …] as the statistics have, got {}",
                    name_of(kind), channels, describe(batch));
  }
  const torch::Tensor values = batch.to(torch::kCPU, torch::kFloat32).contiguous();
  if (kind != Normalization::kLog) {
    return changed<float>(values, channels, [this](double value, std::size_t channel) {
      return (value - shift[channel]) / scale[channel];
    });
  }
  return changed<float>(values, channels, [this](double value, std::size_t channel) {
    if (value <= 0) {
      throw DataError(
          "scaling (log): channel {}: expected values above 0, got {}; use standard or minmax",
          channel, value);
    }
    return (std::log(value) - shift[channel]) / scale[channel];
  });
}

torch::Tensor ChannelScaling::undo(const torch::Tensor& rows) const {
  if (kind == Normalization::kNone) return rows;
  // Units of a file may be too large for float16, whose largest number is 65,504.
  const bool is_half = rows.scalar_type() == torch::kFloat16;
  const auto type = is_half ? torch::kFloat32 : rows.scalar_type();
  if (rows.numel() == 0) return rows.to(type);
  const auto channels = static_cast<std::int64_t>(shift.size());
  const bool is_flat = rows.dim() == 2 && rows.size(1) % channels == 0;
  if (!is_flat && (rows.dim() < 3 || rows.size(1) != channels)) {
    throw DataError("scaling ({}): expected rows of {} channels as the statistics have, got {}",
                    name_of(kind), channels, describe(rows));
  }
  const auto back = [this](double value, std::size_t channel) {
    const double unscaled = value * scale[channel] + shift[channel];
    return kind == Normalization::kLog ? std::exp(unscaled) : unscaled;
  };
  // Predictions may be of any floating type.
  const bool is_double = rows.scalar_type() == torch::kFloat64;
  const torch::Tensor values =
      rows.to(torch::kCPU, is_double ? torch::kFloat64 : torch::kFloat32).contiguous();
  return (is_double ? changed<double>(values, channels, back)
                    : changed<float>(values, channels, back))
      .to(rows.options().dtype(type));
}

std::string describe(const Scaling& scaling) {
  if (scaling.is_none()) return "none";
  return fmt::format("features: {}; targets: {}", describe_channels(scaling.features),
                     describe_channels(scaling.targets));
}

Scaling scaling_of(const Dataset& dataset) {
  return dataset.scaling();
}

}  // namespace lockstep::data
