#include "lockstep/transform/mix.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/data/describe.h"
#include "lockstep/transform/layout.h"
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

// With a lambda for each sample.
torch::Tensor mixed(const torch::Tensor& tensor, const std::vector<double>& lambdas) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(tensor.dim()), 1);
  shape[0] = tensor.size(0);
  const torch::Tensor own =
      torch::tensor(lambdas, torch::kFloat64).to(tensor.options()).view(shape);
  return tensor * own + partners(tensor) * (1 - own);
}

// Makes room for twice as many samples in the entries that are not mixed.
void repeat_others(const MixKeys& keys, std::int64_t samples, Batch& batch) {
  Batch repeated;
  for (const std::string& key : batch.keys()) {
    if (key == keys.features || key == keys.targets) continue;
    const torch::Tensor* const tensor = batch.find(key);
    if (tensor == nullptr || tensor->dim() == 0 || tensor->size(0) != samples) {
      throw DataError(
          "Mixup: add: '{}': expected a tensor with a row for each of {} samples, got {}", key,
          samples, tensor == nullptr ? "no tensor" : describe(*tensor));
    }
    repeated.set(key, torch::cat({*tensor, *tensor}));
  }
  batch.update(std::move(repeated));
}

}  // namespace

Mixup::Mixup(MixupOptions options) : options_(std::move(options)) {
  check_mix("Mixup", options_.alpha, options_.classes);
}

std::string Mixup::settings() const {
  return with_keys(OptionText()
                       .with("alpha", options_.alpha)
                       .with("classes", options_.classes)
                       .with("per_sample", options_.per_sample)
                       .with("add", options_.add),
                   options_.keys);
}

Batch Mixup::operator()(Batch batch, SampleRandom& random) const {
  const MixKeys& keys = options_.keys;
  const torch::Tensor features = batch[keys.features];
  if (!features.is_floating_point() || features.dim() == 0) {
    throw DataError("Mixup: '{}': expected floats, got {}; put a ToTensor into the transform",
                    keys.features, describe(features));
  }
  const torch::Tensor targets = soft_targets("Mixup", keys, options_.classes, batch);
  const auto draw = [&] { return random.beta(options_.alpha, options_.alpha); };
  torch::Tensor mixed_features;
  torch::Tensor mixed_targets;
  if (options_.per_sample) {
    std::vector<double> lambdas(static_cast<std::size_t>(features.size(0)));
    std::ranges::generate(lambdas, draw);
    mixed_features = mixed(features, lambdas);
    mixed_targets = mixed(targets, lambdas);
  } else {
    const double lambda = draw();
    mixed_features = mixed(features, lambda);
    mixed_targets = mixed(targets, lambda);
  }
  if (options_.add) {
    repeat_others(keys, features.size(0), batch);
    mixed_features = torch::cat({features, mixed_features});
    mixed_targets = torch::cat({targets, mixed_targets});
  }
  batch.set(keys.features, mixed_features);
  batch.set(keys.targets, mixed_targets);
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
  const ImageLayout layout = layout_of_batch(images, fmt::format("CutMix: '{}'", keys.features));
  const std::int64_t row_dim = layout.row_dim() + 1;
  const auto [height, width] = layout.size;

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
