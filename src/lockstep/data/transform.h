// Changes a tensor between the data set and the batch:
//
//   Compose({ToTensor(), Normalize({.mean = {0.1307}, .std = {0.3081}})})
//
// A transform works on a whole batch at once, [B, ...]. If the stored data are bytes, ToTensor, a
// Normalize after it and Cast to int64 need no separate pass over the batch, because the gather
// does them while it copies.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/random.h"

namespace lockstep::data {

// What a gather does to bytes while it copies them.
struct BytesAsIs {};
struct BytesToInt64 {};
struct BytesToFloat {       // [H, W] or [H, W, C] to (byte / 255 - mean) / std in [C, H, W]
  std::vector<float> mean;  // empty: not normalised
  std::vector<float> std;
};
using Conversion = std::variant<BytesAsIs, BytesToInt64, BytesToFloat>;

class Transform;

// With what a transform changes one sample.
struct Draw {
  SampleRandom random;
  // Whether the tensor is a mask: each of its values is a class. It is moved, cropped and resized
  // as the image is, but its values are never mixed, and colours, noise and scaling do not apply.
  bool is_mask = false;
};

// A shared, immutable transform. It can be made from any transform: TransformPtr t = ToTensor(). An
// empty one does not change its tensor.
class TransformPtr {
 public:
  TransformPtr() = default;
  template <std::derived_from<Transform> T>
  TransformPtr(T transform) : transform_(std::make_shared<const T>(std::move(transform))) {}

  torch::Tensor apply(const torch::Tensor& batch) const;
  explicit operator bool() const { return transform_ != nullptr; }
  const Transform* operator->() const { return transform_.get(); }
  bool operator==(const TransformPtr&) const = default;  // the same object

 private:
  std::shared_ptr<const Transform> transform_;
};

// Must be safe to call from several threads at once: a loader may prefetch.
class Transform {
 public:
  virtual ~Transform() = default;

  // Must not write into `batch`. Throws DataError if it cannot transform the batch.
  virtual torch::Tensor apply(const torch::Tensor& batch) const = 0;

  // If the gather can do this transform after `conversion`, with the same bits as apply(), adds it
  // to `conversion` and returns true. Otherwise returns false and does not change `conversion`.
  virtual bool fuse(Conversion& conversion) const;

  // The steps of a chain of transforms, in order. Empty if this is a single step.
  virtual std::vector<TransformPtr> steps() const { return {}; }
};

// A transform of one sample after the other: what it does may differ from sample to sample, and so
// may the sizes of the samples before it. Images are bytes [H, W] or [H, W, C], or floats [C, H,
// W]: bytes have their channels last, as files have them, and ToTensor moves them to the front.
class SampleTransform : public Transform {
 public:
  // Must not write into `sample`. All random numbers are drawn from `draw.random`, and as many of
  // them for a mask as for an image. Throws DataError if it cannot transform the sample.
  virtual torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const = 0;

  virtual bool is_random() const { return false; }  // apply() draws numbers

  // Applies it to all samples of a batch and stacks the results. A batch on another device is
  // copied to the CPU, and the result back. Throws ConfigError if it is random, because the numbers
  // of a sample belong to its place in a data set and not in a batch.
  torch::Tensor apply(const torch::Tensor& batch) const override;
};

// Whether an image that should be [H, W, C] looks like [C, H, W]: the last size is too large for a
// number of channels, and the first size is a usual one.
bool looks_channels_first(torch::IntArrayRef image);

// Whether an image that should be [C, H, W] looks like [H, W, C] of colours: nothing but this has
// 3 or 4 columns and many rows and channels. One column is not enough, because signals have it.
bool looks_channels_last(torch::IntArrayRef image);

// Converts images of bytes, [B, H, W] or [B, H, W, C], to float32 [B, C, H, W] in [0, 1]. Images
// that are already floating point get the new layout, but are not scaled. Throws DataError if the
// channels seem to come first already.
class ToTensor : public Transform {
 public:
  torch::Tensor apply(const torch::Tensor& batch) const override;
  bool fuse(Conversion& conversion) const override;
};

struct NormalizeOptions {
  std::vector<double> mean;  // one for all channels, or one per channel
  std::vector<double> std;   // as many as `mean`, none zero
};

// (x - mean) / std of [B, C, ...] floats, channel by channel.
class Normalize : public Transform {
 public:
  // Throws ConfigError if the options are wrong.
  explicit Normalize(const NormalizeOptions& options);

  torch::Tensor apply(const torch::Tensor& batch) const override;
  bool fuse(Conversion& conversion) const override;

 private:
  class Constants;  // copies of mean and std on devices

  std::vector<float> mean_;
  std::vector<float> std_;
  std::shared_ptr<Constants> constants_;  // copies of this transform share them
};

// Converts to another type, e.g. Cast(torch::kInt64) for labels that are stored as bytes.
class Cast : public Transform {
 public:
  explicit Cast(torch::ScalarType type) : type_(type) {}

  torch::Tensor apply(const torch::Tensor& batch) const override;
  bool fuse(Conversion& conversion) const override;

 private:
  torch::ScalarType type_;
};

// Applies one transform after the other.
class Compose : public Transform {
 public:
  explicit Compose(std::vector<TransformPtr> steps) : steps_(std::move(steps)) {}

  torch::Tensor apply(const torch::Tensor& batch) const override;
  std::vector<TransformPtr> steps() const override { return steps_; }

 private:
  std::vector<TransformPtr> steps_;
};

// A function as a transform: Lambda([](const torch::Tensor& batch) { return batch.flatten(1); })
class Lambda : public Transform {
 public:
  using Function = std::function<torch::Tensor(const torch::Tensor&)>;

  // Throws ConfigError if `function` is empty.
  explicit Lambda(Function function);

  torch::Tensor apply(const torch::Tensor& batch) const override { return function_(batch); }

 private:
  Function function_;
};

// The single steps of a transform, in order. A chain inside a chain is flattened.
std::vector<TransformPtr> flat_steps(const TransformPtr& transform);

// A transform split for a gather of bytes: what the gather does while it copies, and the steps that
// are left to do on the gathered batch.
struct FusedTransform {
  Conversion conversion;
  std::vector<TransformPtr> rest;
};
FusedTransform fuse(const TransformPtr& transform);

}  // namespace lockstep::data
