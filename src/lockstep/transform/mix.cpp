#include "lockstep/transform/mix.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/data/describe.h"
#include "lockstep/transform/one_hot.h"

namespace lockstep::data {
namespace {

std::string with_keys(OptionText text, const MixKeys& keys) {
  return text.with("features", keys.features)
      .with("targets", keys.targets)
      .with("labels", keys.labels)
      .str();
}

void check_mix(const std::string& owner, double alpha, const std::optional<std::int64_t>& classes) {
  const Check check(owner);
  check.positive("alpha", alpha);
  if (classes) check.count("classes", *classes);
}

// Targets as floats. Classes become probabilities and are kept as labels.
torch::Tensor soft_targets(std::string_view owner, const MixKeys& keys,
                           const std::optional<std::int64_t>& classes, Batch& batch) {
  const torch::Tensor targets = batch[keys.targets];
  if (targets.is_floating_point()) return targets;
  if (!classes) {
    throw ConfigError("{}: classes: expected their number, because '{}' are classes, {}; got none",
                      owner, keys.targets, describe(targets));
  }
  batch.set(keys.labels, targets);
  return one_hot_rows(targets, *classes);
}

// The sample before each one.
torch::Tensor partners(const torch::Tensor& tensor) {
  return tensor.roll(1, 0);
}

torch::Tensor mixed(const torch::Tensor& tensor, double lambda) {
  return tensor * lambda + partners(tensor) * (1 - lambda);
}

}  // namespace

Mixup::Mixup(MixupOptions options) : options_(std::move(options)) {
  check_mix("Mixup", options_.alpha, options_.classes);
}

std::string Mixup::settings() const {
  return with_keys(OptionText().with("alpha", options_.alpha).with("classes", options_.classes),
                   options_.keys);
}

Batch Mixup::operator()(Batch batch, SampleRandom& random) const {
  const MixKeys& keys = options_.keys;
  const torch::Tensor features = batch[keys.features];
  if (!features.is_floating_point() || features.dim() == 0) {
    throw DataError("Mixup: '{}': expected floats, got {}; put a ToTensor into the transform",
                    keys.features, describe(features));
  }
  const double lambda = random.beta(options_.alpha, options_.alpha);
  const torch::Tensor targets = soft_targets("Mixup", keys, options_.classes, batch);
  batch.set(keys.features, mixed(features, lambda));
  batch.set(keys.targets, mixed(targets, lambda));
  return batch;
}

CutMix::CutMix(CutMixOptions options) : options_(std::move(options)) {
  check_mix("CutMix", options_.alpha, options_.classes);
}

std::string CutMix::settings() const {
  return with_keys(OptionText().with("alpha", options_.alpha).with("classes", options_.classes),
                   options_.keys);
}

Batch CutMix::operator()(Batch batch, SampleRandom& random) const {
  const MixKeys& keys = options_.keys;
  const torch::Tensor images = batch[keys.features];
  if (images.dim() != 3 && images.dim() != 4) {
    throw DataError(
        "CutMix: '{}': expected images, bytes [B, H, W] or [B, H, W, C] or floats [B, C, H, W], "
        "got {}",
        keys.features, describe(images));
  }
  const std::int64_t row_dim = images.is_floating_point() && images.dim() == 4 ? 2 : 1;
  const std::int64_t height = images.size(row_dim);
  const std::int64_t width = images.size(row_dim + 1);

  const double lambda = random.beta(options_.alpha, options_.alpha);
  const std::int64_t center_y = random.below(height);
  const std::int64_t center_x = random.below(width);
  const double half = 0.5 * std::sqrt(1 - lambda);
  const auto half_height = static_cast<std::int64_t>(half * static_cast<double>(height));
  const auto half_width = static_cast<std::int64_t>(half * static_cast<double>(width));
  const std::int64_t top = std::max<std::int64_t>(center_y - half_height, 0);
  const std::int64_t left = std::max<std::int64_t>(center_x - half_width, 0);
  const std::int64_t rows = std::min(center_y + half_height, height) - top;
  const std::int64_t columns = std::min(center_x + half_width, width) - left;

  const auto part = [&](const torch::Tensor& of) {
    return of.narrow(row_dim, top, rows).narrow(row_dim + 1, left, columns);
  };
  torch::Tensor result = images.clone();
  part(result).copy_(partners(part(images)));
  // The rectangle may have been cut off at the edges of the image.
  const double kept = 1 - static_cast<double>(rows * columns) / static_cast<double>(height * width);
  const torch::Tensor targets = soft_targets("CutMix", keys, options_.classes, batch);
  batch.set(keys.features, result);
  batch.set(keys.targets, mixed(targets, kept));
  return batch;
}

LabelSmoothing::LabelSmoothing(LabelSmoothingOptions options) : options_(std::move(options)) {
  const Check check("LabelSmoothing");
  check.fraction("smoothing", options_.smoothing);
  check.count("classes", options_.classes);
}

std::string LabelSmoothing::settings() const {
  return with_keys(
      OptionText().with("smoothing", options_.smoothing).with("classes", options_.classes),
      options_.keys);
}

Batch LabelSmoothing::operator()(Batch batch, SampleRandom&) const {
  const torch::Tensor targets =
      soft_targets("LabelSmoothing", options_.keys, options_.classes, batch);
  const double spread = options_.smoothing / static_cast<double>(options_.classes);
  batch.set(options_.keys.targets, targets * (1 - options_.smoothing) + spread);
  return batch;
}

}  // namespace lockstep::data
