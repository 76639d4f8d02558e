// Batch transforms that mix samples: for LoaderOptions::batch_transform.
//
//   Loader train = {data, {.batch_size = 64, .shuffle = true,
//                          .batch_transform = Mixup({.alpha = 0.2, .classes = 10})}};
//   Loader valid = {data, {.batch_size = 64, .batch_transform = LabelSmoothing({.classes = 10})}};
//
// "targets" become probabilities, [B, classes] float32, which CrossEntropyLoss accepts. The classes
// themselves are kept as "labels", for metrics: AccuracyCallback({.target_key = "labels"}). A
// loader without mixed samples gets the same two keys by LabelSmoothing, whose default smoothing
// is 0. Targets that are already floats are mixed as they are, and there are no "labels".
//
// For label smoothing alone, the option label_smoothing of CrossEntropyLoss does the same, and
// targets stay classes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/data/batch_transform.h"

namespace lockstep::data {

// The tensors that are mixed.
struct MixKeys {
  std::string features = "features";
  std::string targets = "targets";
  std::string labels = "labels";  // where integer targets are kept
};

struct MixupOptions {
  double alpha = 0.2;  // parts are drawn from Beta(alpha, alpha): the larger, the more is mixed
  std::optional<std::int64_t> classes = {};  // how many; needed if targets are classes
  MixKeys keys = {};
  bool per_sample = false;  // each sample has its own lambda
  // The mixed samples come after the samples themselves, so that the batch is twice as large,
  // instead of replacing them. Any other tensor of the batch is repeated.
  bool add = false;
};

// Each sample becomes lambda times itself plus (1 - lambda) times the one before it in the shard's
// part of the batch (the last one for the first), with one lambda per part, or per sample. So do
// the targets.
class Mixup {
 public:
  // Throws ConfigError if the options are wrong, as do the others.
  explicit Mixup(MixupOptions options);

  // Throws DataError if the features are not floats, or if the mixed samples cannot be added
  // because an entry of the batch has no row for each sample, and ConfigError if classes are not
  // given but needed.
  Batch operator()(Batch batch, SampleRandom& random) const;

  std::string settings() const;  // that ranks compare

 private:
  MixupOptions options_;
};

struct CutMixOptions {
  double alpha = 1.0;                        // as in Mixup
  std::optional<std::int64_t> classes = {};  // how many; needed if targets are classes
  MixKeys keys = {};
};

// A random rectangle of each image is replaced by that of the image before it. Targets are mixed by
// area. Images are bytes [B, H, W] or [B, H, W, C], or floats [B, C, H, W].
class CutMix {
 public:
  explicit CutMix(CutMixOptions options);

  Batch operator()(Batch batch, SampleRandom& random) const;

  std::string settings() const;  // that ranks compare

 private:
  CutMixOptions options_;
};

struct LabelSmoothingOptions {
  double smoothing = 0;      // the part of a target that is spread over all classes
  std::int64_t classes = 0;  // how many there are
  MixKeys keys = {};
};

// Classes become probabilities.
class LabelSmoothing {
 public:
  explicit LabelSmoothing(LabelSmoothingOptions options);

  Batch operator()(Batch batch, SampleRandom& random) const;

  std::string settings() const;  // that ranks compare

 private:
  LabelSmoothingOptions options_;
};

}  // namespace lockstep::data
