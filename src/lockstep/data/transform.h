// What happens to a tensor between the data set and the batch:
//
//   Compose({ToTensor(), Normalize({.mean = {0.1307}, .std = {0.3081}})})
//
// A transform works on a whole batch at once, [B, ...]. Where the stored data are bytes, ToTensor,
// a Normalize after it and Cast to int64 cost no pass of their own: the gather does them as it
// copies.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include <torch/types.h>

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

// A shared, immutable transform, made from any of them: TransformPtr t = ToTensor(). An empty one
// leaves its tensor as it is.
class TransformPtr {
 public:
  TransformPtr() = default;
  template <std::derived_from<Transform> T>
  TransformPtr(T transform) : transform_(std::make_shared<const T>(std::move(transform))) {}

  torch::Tensor apply(const torch::Tensor& batch) const;
  explicit operator bool() const { return transform_ != nullptr; }
  const Transform* operator->() const { return transform_.get(); }

 private:
  std::shared_ptr<const Transform> transform_;
};

// Must be safe to call from several threads at once: a loader may prefetch.
class Transform {
 public:
  virtual ~Transform() = default;

  // Must not write into `batch`. Throws DataError where it cannot work on it.
  virtual torch::Tensor apply(const torch::Tensor& batch) const = 0;

  // Joins `conversion` and returns true where the gather can do this transform after it, with the
  // same bits as apply(); otherwise returns false and leaves it.
  virtual bool fuse(Conversion& conversion) const;

  // What this one does, in order, where it is a chain; empty where it is one step.
  virtual std::vector<TransformPtr> steps() const { return {}; }
};

// Images of bytes, [B, H, W] or [B, H, W, C], to float32 [B, C, H, W] in [0, 1]. Images that are
// floating point already are laid out, not scaled.
class ToTensor : public Transform {
 public:
  torch::Tensor apply(const torch::Tensor& batch) const override;
  bool fuse(Conversion& conversion) const override;
};

struct NormalizeOptions {
  std::vector<double> mean;  // one for all channels, or one a channel
  std::vector<double> std;   // as many as `mean`, none zero
};

// (x - mean) / std of [B, C, ...] floats, channel by channel.
class Normalize : public Transform {
 public:
  // Throws ConfigError where the options make no sense.
  explicit Normalize(const NormalizeOptions& options);

  torch::Tensor apply(const torch::Tensor& batch) const override;
  bool fuse(Conversion& conversion) const override;

 private:
  std::vector<float> mean_;
  std::vector<float> std_;
};

// To another type, e.g. Cast(torch::kInt64) for labels kept as bytes.
class Cast : public Transform {
 public:
  explicit Cast(torch::ScalarType type) : type_(type) {}

  torch::Tensor apply(const torch::Tensor& batch) const override;
  bool fuse(Conversion& conversion) const override;

 private:
  torch::ScalarType type_;
};

// One transform after the other.
class Compose : public Transform {
 public:
  explicit Compose(std::vector<TransformPtr> steps) : steps_(std::move(steps)) {}

  torch::Tensor apply(const torch::Tensor& batch) const override;
  std::vector<TransformPtr> steps() const override { return steps_; }

 private:
  std::vector<TransformPtr> steps_;
};

// Your own: Lambda([](const torch::Tensor& batch) { return batch.flatten(1); })
class Lambda : public Transform {
 public:
  using Function = std::function<torch::Tensor(const torch::Tensor&)>;

  // Throws ConfigError where `function` is empty.
  explicit Lambda(Function function);

  torch::Tensor apply(const torch::Tensor& batch) const override { return function_(batch); }

 private:
  Function function_;
};

// A transform taken apart for a gather of bytes: what it does while it copies, and what is left to
// do on the gathered batch.
struct FusedTransform {
  Conversion conversion;
  std::vector<TransformPtr> rest;
};
FusedTransform fuse(const TransformPtr& transform);

}  // namespace lockstep::data
