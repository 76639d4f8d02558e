#include "lockstep/data/sample_stack.h"

#include <array>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"
#include "lockstep/data/gather.h"

namespace lockstep::data {
namespace {

// The steps that are done while such a sample is copied, and the steps that are left.
FusedTransform plan_stack(const SampleChain& chain, const torch::Tensor& sample) {
  const FusedTransform& fused = chain.fused_batch_steps();
  const auto* floats = std::get_if<BytesToFloat>(&fused.conversion);
  const bool bytes = sample.device().is_cpu() && sample.scalar_type() == torch::kUInt8;
  if (!bytes || (floats != nullptr && !channels_for(*floats, sample.sizes()))) {
    return {.rest = {chain.batch_steps()}};
  }
  return fused;
}

// Copies one sample into its row of the result, [1, ...].
struct CopySample {
  const torch::Tensor& sample;
  torch::Tensor row;

  void operator()(const BytesAsIs&) { row.select(0, 0).copy_(sample); }
  void operator()(const BytesToInt64&) { row.select(0, 0).copy_(sample); }
  void operator()(const BytesToFloat& floats) {
    constexpr std::array<std::int64_t, 1> kOnly = {0};
    const std::int64_t channels = channels_for(floats, sample.sizes()).value();
    gather_bytes_to_float(sample.contiguous().unsqueeze(0), kOnly,
                          {.channels = channels, .mean = floats.mean, .std = floats.std}, row);
  }
};

}  // namespace

void SampleStack::begin(const torch::Tensor& first) {
  FusedTransform plan = plan_stack(chain_, first);
  conversion_ = std::move(plan.conversion);
  rest_ = std::move(plan.rest);
  first_ = first;
  std::vector<std::int64_t> shape = {static_cast<std::int64_t>(request_.count)};
  torch::ScalarType type = first.scalar_type();
  if (const auto* floats = std::get_if<BytesToFloat>(&conversion_)) {
    shape.push_back(channels_for(*floats, first.sizes()).value());
    shape.push_back(first.size(0));
    shape.push_back(first.size(1));
    type = torch::kFloat32;
  } else {
    shape.insert(shape.end(), first.sizes().begin(), first.sizes().end());
    if (std::holds_alternative<BytesToInt64>(conversion_)) type = torch::kInt64;
  }
  out_ = first.device().is_cpu() ? reuse_or_allocate(request_.reuse, request_.key, shape, type)
                                 : torch::empty(shape, first.options());
}

void SampleStack::check(const torch::Tensor& sample) const {
  if (sample.sizes() == first_.sizes() && sample.scalar_type() == first_.scalar_type()) return;
  throw DataError(
      "{}, but that of the first sample of the batch is {}; expected equal shapes: add a transform "
      "that gives all samples one size, such as Resize or RandomCrop, or set the loader's collate",
      describe(sample), describe(first_));
}

void SampleStack::add(const torch::Tensor& sample) {
  if (added_ == 0) begin(sample);
  check(sample);
  std::visit(CopySample{.sample = sample, .row = out_.narrow(0, added_, 1)}, conversion_);
  ++added_;
}

torch::Tensor SampleStack::finish() {
  for (const TransformPtr& step : rest_) out_ = step.apply(out_);
  return out_;
}

}  // namespace lockstep::data
