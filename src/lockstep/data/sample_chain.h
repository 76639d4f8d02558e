// A chain of transforms, split into the steps for single samples and the steps for whole batches:
//
//   Compose({RandomCrop(…), ToTensor(), RandomErasing(), Normalize(…)})
//            ^ samples                  ^              ^ the batch
//
// Random steps need the random numbers of a sample, and samples may differ in size until they are
// cropped. So everything up to the last SampleTransform is done sample by sample.
#pragma once

#include <vector>

#include <torch/types.h>

#include "lockstep/data/transform.h"

namespace lockstep::data {

class SampleChain {
 public:
  SampleChain() = default;  // changes nothing
  explicit SampleChain(const TransformPtr& transform);

  bool has_sample_steps() const { return !sample_steps_.empty(); }
  bool is_random() const;  // a step draws random numbers

  // Applies the steps for samples. A step for batches that is among them, such as ToTensor, sees
  // the sample as a batch of one. It is left out for a mask, because it does not know that the
  // values are classes.
  torch::Tensor apply_to_sample(const torch::Tensor& sample, Draw& draw) const;

  std::vector<TransformPtr> sample_steps() const { return sample_steps_; }
  TransformPtr batch_steps() const;  // as one transform; empty if there are none
  // The same for samples that are bytes: a gather does a part of the steps while it copies.
  const FusedTransform& fused_batch_steps() const { return fused_; }

 private:
  std::vector<TransformPtr> sample_steps_;
  std::vector<TransformPtr> batch_steps_;
  FusedTransform fused_;
};

}  // namespace lockstep::data
