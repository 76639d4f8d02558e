#include "lockstep/data/sample_chain.h"

#include <algorithm>

namespace lockstep::data {
namespace {

const SampleTransform* as_sample_step(const TransformPtr& step) {
  return dynamic_cast<const SampleTransform*>(step.operator->());
}

}  // namespace

SampleChain::SampleChain(const TransformPtr& transform) : sample_steps_(flat_steps(transform)) {
  const auto batch_begin =
      std::find_if(sample_steps_.rbegin(), sample_steps_.rend(), [](const TransformPtr& step) {
        return as_sample_step(step) != nullptr;
      }).base();
  batch_steps_.assign(batch_begin, sample_steps_.end());
  sample_steps_.erase(batch_begin, sample_steps_.end());
  fused_ = fuse(batch_steps());
}

bool SampleChain::is_random() const {
  return std::ranges::any_of(sample_steps_, [](const TransformPtr& step) {
    const SampleTransform* const of_sample = as_sample_step(step);
    return of_sample != nullptr && of_sample->is_random();
  });
}

torch::Tensor SampleChain::apply_to_sample(const torch::Tensor& sample, Draw& draw) const {
  torch::Tensor result = sample;
  for (const TransformPtr& step : sample_steps_) {
    if (const SampleTransform* const of_sample = as_sample_step(step)) {
      result = of_sample->apply(result, draw);
    } else if (!draw.is_mask) {
      result = step.apply(result.unsqueeze(0)).squeeze(0);
    }
  }
  return result;
}

TransformPtr SampleChain::batch_steps() const {
  if (batch_steps_.empty()) return {};
  return batch_steps_.size() == 1 ? batch_steps_.front() : TransformPtr(Compose(batch_steps_));
}

}  // namespace lockstep::data
