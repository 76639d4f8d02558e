#include "lockstep/science/picae.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>

#include "lockstep/base/error.h"

namespace lockstep::science {
namespace {

namespace nn = torch::nn;

constexpr const char* kSpacingNames[] = {"spacing_x", "spacing_y", "spacing_z"};

// Along the axes 1, 2, 3 of a component, which are x, y, z.
class Derivative {
 public:
  explicit Derivative(const std::vector<double>& spacing) : spacing_(spacing) {}

  torch::Tensor operator()(const torch::Tensor& field, std::int64_t axis) const {
    const double spacing = spacing_.empty() ? 1.0 : spacing_[static_cast<std::size_t>(axis) - 1];
    return (torch::roll(field, -1, axis) - torch::roll(field, 1, axis)) / (2.0 * spacing);
  }

 private:
  const std::vector<double>& spacing_;
};

class PICAEModelImpl : public nn::Module {
 public:
  PICAEModelImpl(const PICAEConfig& config, const FieldShape& shape)
      : size_(shape.size), padding_(config.kernel_size / 2), spacing_(config.spacing) {
    std::int64_t channels = 3;
    for (std::int64_t i = 0; i < config.enc_nlayers; ++i) {
      encoder_->push_back(
          nn::Conv3d(nn::Conv3dOptions(channels, config.nfilters, config.kernel_size).stride(2)));
      channels = config.nfilters;
    }
    for (std::int64_t i = 0; i < config.dec_nlayers; ++i) {
      const bool last = i + 1 == config.dec_nlayers;
      decoder_->push_back(
          nn::Conv3d(nn::Conv3dOptions(channels, last ? 3 : config.nfilters, config.kernel_size)));
    }
    register_module("encoder", encoder_);
    register_module("decoder", decoder_);
  }

  torch::Tensor forward(const torch::Tensor& velocity) {
    torch::Tensor x = velocity;
    for (const auto& layer : *encoder_)
      x = torch::relu(layer->as<nn::Conv3d>()->forward(padded(x)));
    const std::size_t steps = decoder_->size();
    for (std::size_t i = 0; i < steps; ++i) {
      x = upsampled(x, i + 1, steps);
      x = decoder_[i]->as<nn::Conv3d>()->forward(padded(x));
      if (i + 1 < steps) x = torch::relu(x);
    }
    return curl(x, spacing_).flatten(1);
  }

 private:
  torch::Tensor padded(const torch::Tensor& x) const {
    namespace F = nn::functional;
    return F::pad(x,
                  F::PadFuncOptions(std::vector<std::int64_t>(6, padding_)).mode(torch::kCircular));
  }

  // Doubles each side; the last step enlarges to the size of the field.
  torch::Tensor upsampled(const torch::Tensor& x, std::size_t step, std::size_t steps) const {
    namespace F = nn::functional;
    Sizes target = size_;
    for (std::size_t i = 0; i < 3 && step < steps; ++i) {
      target[i] = std::min(size_[i], 2 * x.size(static_cast<std::int64_t>(i) + 2));
    }
    return F::interpolate(x, F::InterpolateFuncOptions().size(target).mode(torch::kNearest));
  }

  nn::ModuleList encoder_, decoder_;
  Sizes size_;
  std::int64_t padding_;
  std::vector<double> spacing_;
};
TORCH_MODULE(PICAEModel);

}  // namespace

torch::Tensor curl(const torch::Tensor& potential, const std::vector<double>& spacing) {
  const auto a = potential.unbind(1);
  const Derivative derivative(spacing);
  return torch::stack(
      {derivative(a[2], 2) - derivative(a[1], 3), derivative(a[0], 3) - derivative(a[2], 1),
       derivative(a[1], 1) - derivative(a[0], 2)},
      1);
}

torch::Tensor divergence(const torch::Tensor& velocity, const std::vector<double>& spacing) {
  const auto u = velocity.unbind(1);
  const Derivative derivative(spacing);
  return derivative(u[0], 1) + derivative(u[1], 2) + derivative(u[2], 3);
}

PICAE::PICAE(PICAEConfig config) : Network(config.network), config_(std::move(config)) {
  const auto positive = [](const char* option, std::int64_t value) {
    if (value < 1)
      throw ConfigError("PICAE: {}: expected a positive integer, got {}", option, value);
  };
  positive("nfilters", config_.nfilters);
  positive("enc_nlayers", config_.enc_nlayers);
  positive("dec_nlayers", config_.dec_nlayers);
  positive("kernel_size", config_.kernel_size);
  if (config_.kernel_size % 2 == 0) {
    throw ConfigError("PICAE: kernel_size: expected an odd number, got {}", config_.kernel_size);
  }
  const auto is_length = [](double value) { return std::isfinite(value) && value > 0; };
  if (!config_.spacing.empty() &&
      (config_.spacing.size() != 3 || !std::ranges::all_of(config_.spacing, is_length))) {
    throw ConfigError("PICAE: spacing: expected three positive numbers, got [{}]",
                      fmt::join(config_.spacing, ", "));
  }
}

Model PICAE::make_model(const FieldShape& shape) const {
  const std::int64_t least = std::int64_t{1} << config_.enc_nlayers;
  bool fits = shape.channels == 3 && shape.size.size() == 3;
  std::int64_t points = 1;
  for (const std::int64_t side : shape.size) {
    fits = fits && side >= least && side % least == 0;
    points *= side;
  }
  if (!fits || shape.outputs != 3 * points) {
    throw DataError(
        "PICAE: expected samples and targets [3, N, N, N] with N a multiple of {}, got {} channels "
        "of [{}]",
        least, shape.channels, fmt::join(shape.size, ", "));
  }
  return Model(PICAEModel(config_, shape));
}

Criterion PICAE::criterion() const {
  return nn::MSELoss();
}

HParams PICAE::options() const {
  HParams options = {{"nfilters", config_.nfilters},
                     {"kernel_size", config_.kernel_size},
                     {"enc_nlayers", config_.enc_nlayers},
                     {"dec_nlayers", config_.dec_nlayers}};
  for (std::size_t i = 0; i < config_.spacing.size(); ++i) {
    options[kSpacingNames[i]] = config_.spacing[i];
  }
  return options;
}

void PICAE::restore(const HParams& options) {
  const auto get = [&](const char* name) { return std::get<std::int64_t>(options.at(name)); };
  config_.nfilters = get("nfilters");
  config_.kernel_size = get("kernel_size");
  config_.enc_nlayers = get("enc_nlayers");
  config_.dec_nlayers = get("dec_nlayers");
  config_.spacing.clear();
  if (!options.contains(kSpacingNames[0])) return;
  for (const char* const name : kSpacingNames) {
    config_.spacing.push_back(std::get<double>(options.at(name)));
  }
}

}  // namespace lockstep::science
