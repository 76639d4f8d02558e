#include "lockstep/data/transform.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>

#include <c10/core/InferenceMode.h>
#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"

namespace lockstep::data {
namespace {

void flatten(const TransformPtr& transform, std::vector<TransformPtr>& steps) {
  if (!transform) return;
  const std::vector<TransformPtr> inner = transform->steps();
  if (inner.empty()) steps.push_back(transform);
  for (const TransformPtr& step : inner) flatten(step, steps);
}

// Of an image.
constexpr std::int64_t kMostChannels = 4;

bool is_usual_number_of_channels(std::int64_t size) {
  return size == 1 || size == 3 || size == 4;
}

}  // namespace

std::vector<TransformPtr> flat_steps(const TransformPtr& transform) {
  std::vector<TransformPtr> steps;
  flatten(transform, steps);
  return steps;
}

torch::Tensor TransformPtr::apply(const torch::Tensor& batch) const {
  return transform_ ? transform_->apply(batch) : batch;
}

bool Transform::fuse(Conversion&) const {
  return false;
}

torch::Tensor SampleTransform::apply(const torch::Tensor& batch) const {
  if (is_random()) {
    throw ConfigError(
        "a random transform was given a whole batch; expected it in the transform of a data set, "
        "which "
        "knows the random numbers of each sample");
  }
  if (batch.dim() == 0 || batch.size(0) == 0) {
    throw DataError("expected a batch of samples, [B, ...], got {}", describe(batch));
  }
  // The transforms of images read the values themselves, so they need them in the memory of the
  // CPU.
  const torch::Tensor on_cpu = batch.cpu();
  Draw draw{.random = SampleRandom({}, 0)};
  std::vector<torch::Tensor> samples;
  samples.reserve(static_cast<std::size_t>(batch.size(0)));
  for (const torch::Tensor& sample : on_cpu.unbind(0)) samples.push_back(apply(sample, draw));
  return torch::stack(samples).to(batch.device());
}

bool looks_channels_first(torch::IntArrayRef image) {
  return image.size() == 3 && image[2] > kMostChannels && is_usual_number_of_channels(image[0]);
}

bool looks_channels_last(torch::IntArrayRef image) {
  constexpr std::int64_t kFewestPixels = 16;
  return image.size() == 3 && image[0] >= kFewestPixels && image[1] >= kFewestPixels &&
         (image[2] == 3 || image[2] == 4);
}

torch::Tensor ToTensor::apply(const torch::Tensor& batch) const {
  const bool bytes = batch.scalar_type() == torch::kUInt8;
  if ((batch.dim() != 3 && batch.dim() != 4) || !(bytes || batch.is_floating_point())) {
    throw DataError(
        "ToTensor: expected bytes or floats in [B, H, W] or [B, H, W, C], got {}; floats that need "
        "no new layout need no ToTensor",
        describe(batch));
  }
  if (looks_channels_first(batch.sizes().slice(1))) {
    throw DataError(
        "ToTensor: expected channels last, [B, H, W, C], got {}, which looks like [B, C, H, W]; "
        "{}",
        describe(batch),
        bytes ? "permute the data to channels last (tensor.permute({0, 2, 3, 1})), or replace "
                "ToTensor by a Lambda that divides by 255"
              : "floats with channels first need no ToTensor");
  }
  const torch::Tensor laid_out =
      batch.dim() == 3 ? batch.unsqueeze(1) : batch.permute({0, 3, 1, 2}).contiguous();
  return bytes ? laid_out.to(torch::kFloat32).div_(255) : laid_out;
}

bool ToTensor::fuse(Conversion& conversion) const {
  if (!std::holds_alternative<BytesAsIs>(conversion)) return false;
  conversion = BytesToFloat{};
  return true;
}

// The copy of a tensor to a GPU waits for it, so each device gets its constants once.
class Normalize::Constants {
 public:
  struct Pair {
    torch::Tensor mean;
    torch::Tensor std;
  };

  Pair of(const Normalize& normalize, const torch::TensorOptions& options) {
    // Constants of the CPU cost little. Without them here, no thread holds the lock while the
    // process forks.
    if (options.device().is_cpu()) return make(normalize, options);
    const std::lock_guard lock(mutex_);
    for (const Pair& pair : made_) {
      if (pair.mean.device() == options.device() && pair.mean.dtype() == options.dtype()) {
        return pair;
      }
    }
    return made_.emplace_back(make(normalize, options));
  }

 private:
  static Pair make(const Normalize& normalize, const torch::TensorOptions& options) {
    const c10::InferenceMode no_inference(false);  // batches that need gradients use them, too
    return {.mean = torch::tensor(normalize.mean_).to(options),
            .std = torch::tensor(normalize.std_).to(options)};
  }

  std::mutex mutex_;
  std::vector<Pair> made_;
};

Normalize::Normalize(const NormalizeOptions& options)
    : mean_(options.mean.begin(), options.mean.end()),
      std_(options.std.begin(), options.std.end()),
      constants_(std::make_shared<Constants>()) {
  if (mean_.empty() || mean_.size() != std_.size()) {
    throw ConfigError(
        "Normalize: expected one mean and one std, or as many as channels; got {} and {}",
        mean_.size(), std_.size());
  }
  const auto finite = [](float value) { return std::isfinite(value); };
  if (!std::ranges::all_of(mean_, finite) || !std::ranges::all_of(std_, finite) ||
      std::ranges::find(std_, 0.0F) != std_.end()) {
    throw ConfigError("Normalize: expected finite means and stds other than zero; got {} and {}",
                      mean_, std_);
  }
}

torch::Tensor Normalize::apply(const torch::Tensor& batch) const {
  const auto channels = static_cast<std::int64_t>(mean_.size());
  if (!batch.is_floating_point() || batch.dim() < 2 ||
      (channels != 1 && batch.size(1) != channels)) {
    throw DataError("Normalize: expected floats in [B, C, ...] with {}, got {}",
                    channels == 1 ? "any C" : fmt::format("C = {}", channels), describe(batch));
  }
  std::vector<std::int64_t> shape(static_cast<std::size_t>(batch.dim()), 1);
  shape[1] = channels;
  const auto [mean, std] = constants_->of(*this, batch.options());
  return batch.sub(mean.view(shape)).div_(std.view(shape));
}

bool Normalize::fuse(Conversion& conversion) const {
  auto* floats = std::get_if<BytesToFloat>(&conversion);
  if (floats == nullptr || !floats->mean.empty()) return false;
  *floats = {.mean = mean_, .std = std_};
  return true;
}

torch::Tensor Cast::apply(const torch::Tensor& batch) const {
  return batch.to(type_);
}

bool Cast::fuse(Conversion& conversion) const {
  if (type_ != torch::kInt64 || !std::holds_alternative<BytesAsIs>(conversion)) return false;
  conversion = BytesToInt64{};
  return true;
}

torch::Tensor Compose::apply(const torch::Tensor& batch) const {
  torch::Tensor result = batch;
  for (const TransformPtr& step : steps_) result = step.apply(result);
  return result;
}

Lambda::Lambda(Function function) : function_(std::move(function)) {
  if (!function_) throw ConfigError("Lambda: expected a function, got an empty one");
}

FusedTransform fuse(const TransformPtr& transform) {
  const std::vector<TransformPtr> steps = flat_steps(transform);
  FusedTransform fused;
  auto step = steps.begin();
  while (step != steps.end() && (*step)->fuse(fused.conversion)) ++step;
  fused.rest.assign(step, steps.end());
  return fused;
}

}  // namespace lockstep::data
