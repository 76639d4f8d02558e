// The samples of a field as a model gets them: scaled, transformed, and with flat targets.
#pragma once

#include "lockstep/data/composite_dataset.h"
#include "lockstep/data/sample_chain.h"
#include "lockstep/data/scaling.h"

namespace lockstep::science {

// The changes of a sample, in the order in which they are made.
struct Preparation {
  data::Scaling scaling = {};
  bool is_scaled = false;  // the samples have this scaling already
  data::TransformPtr transform = {};
  data::TransformPtr target_transform = {};
  bool flat = false;  // targets as one row

  bool changes_nothing() const {
    return scaling.is_none() && !transform && !target_transform && !flat;
  }
};

// Random transforms of features and targets start with the same random numbers, so that both are
// turned or cropped in the same way.
class PreparedFields : public data::WrapperDataset {
 public:
  // `fields` has samples with "features" and "targets" [C, …].
  PreparedFields(data::DatasetPtr fields, const Preparation& preparation);

  Batch sample_in_epoch(std::int64_t index, const data::EpochKey& key) const override;
  Batch gather_in_epoch(std::span<const std::int64_t> indices, const data::EpochKey& key,
                        Batch reuse) const override;
  bool is_random() const override { return draws() || inner().is_random(); }
  std::uint64_t random_layers() const override;
  std::vector<std::string> class_names() const override;
  torch::Tensor column(std::string_view key) const override;
  // Its own, or else that of `fields`.
  const data::Scaling& scaling() const override {
    return scaling_.is_none() ? inner().scaling() : scaling_;
  }

 private:
  // The changes of the tensor under one key.
  struct Step {
    data::ChannelScaling scaling;  // none if the samples have it already
    data::SampleChain chain;
    bool flat = false;

    bool changes_nothing() const;
  };

  bool draws() const { return features_.chain.is_random() || targets_.chain.is_random(); }

  static torch::Tensor apply(const Step& step, torch::Tensor batch,
                             std::span<const std::int64_t> indices, const data::EpochKey& key);

  std::uint64_t layer_;
  data::Scaling scaling_;
  Step features_;
  Step targets_;
};

// The data set itself if nothing is to be done.
data::DatasetPtr prepared(data::DatasetPtr fields, const Preparation& preparation);

}  // namespace lockstep::science
