// Makes one tensor of a batch from transformed samples. They are added one by one, so that a sample
// is converted and copied while it is in the processor's cache, and its memory is free afterwards.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/batch.h"
#include "lockstep/data/sample_chain.h"

namespace lockstep::data {

struct StackRequest {
  std::string_view key;   // of the tensor
  std::size_t count = 0;  // of the samples, at least 1
  const Batch& reuse;     // as in Dataset::gather
};

class SampleStack {
 public:
  // The chain must outlive the stack.
  SampleStack(const SampleChain& chain, const StackRequest& request)
      : chain_(chain), request_(request) {}

  // Adds a sample after the chain's steps for samples, whatever memory it is in. Throws DataError
  // if its shape or type is not that of the first one.
  void add(const torch::Tensor& sample);

  // The batch after the chain's steps for batches. Call it after all samples were added.
  torch::Tensor finish();

 private:
  void begin(const torch::Tensor& first);
  void check(const torch::Tensor& sample) const;

  const SampleChain& chain_;
  StackRequest request_;
  Conversion conversion_;           // done while a sample is copied
  std::vector<TransformPtr> rest_;  // done by finish()
  torch::Tensor first_;             // has the shape and type of all samples
  torch::Tensor out_;
  std::int64_t added_ = 0;
};

}  // namespace lockstep::data
