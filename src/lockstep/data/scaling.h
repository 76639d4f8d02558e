// Values that are scaled channel by channel before a model sees them. A data set that scales its
// samples says so, and predictions for them are scaled back to the units of the file.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

enum class Normalization {
  kNone,
  kStandard,  // (x - mean) / standard deviation
  kMinMax,    // (x - smallest) / (largest - smallest), which is 0 to 1
  kLog,       // kStandard of ln x, for values above 0 that range over several powers of ten
};

inline constexpr std::pair<Normalization, const char*> kNormalizationNames[] = {
    {Normalization::kNone, "none"},
    {Normalization::kStandard, "standard"},
    {Normalization::kMinMax, "minmax"},
    {Normalization::kLog, "log"}};

std::string name_of(Normalization kind);
// Throws ConfigError, which lists the names.
Normalization normalization_of(std::string_view name);

// y = (x - shift) / scale of each channel, or y = (ln x - shift) / scale with kLog.
struct ChannelScaling {
  Normalization kind = Normalization::kNone;
  std::vector<double> shift = {};  // one per channel; none with kNone
  std::vector<double> scale = {};  // as many, none zero

  // Throws ConfigError if the lists do not belong together, or a number makes no sense.
  void check() const;

  // Scales a batch [B, C, …] to floats. The result of a value does not depend on the rest of the
  // batch. Throws DataError for another number of channels, and for values that are not above 0
  // with kLog.
  torch::Tensor apply(const torch::Tensor& batch) const;

  // Scales rows [B, C, …] or [B, C * points] back, in their own type, but float16 to float32.
  // Throws DataError if rows do not consist of as many channels.
  torch::Tensor undo(const torch::Tensor& rows) const;

  bool operator==(const ChannelScaling&) const = default;
};

// Of the keys "features" and "targets".
struct Scaling {
  ChannelScaling features = {};
  ChannelScaling targets = {};

  bool is_none() const {
    return features.kind == Normalization::kNone && targets.kind == Normalization::kNone;
  }

  bool operator==(const Scaling&) const = default;
};

// "features: standard shift [0.1] scale [2]; targets: …" with all digits, or "none".
std::string describe(const Scaling& scaling);

// A data set whose samples are scaled.
class ScaledDataset : public Dataset {
 public:
  const Scaling& scaling() const override = 0;
};

// How the samples of a data set are scaled, also if one inside of it scales them. Throws DataError
// if it is a concatenation of data sets that are scaled in different ways.
Scaling scaling_of(const Dataset& dataset);

}  // namespace lockstep::data
