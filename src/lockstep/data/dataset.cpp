#include "lockstep/data/dataset.h"

#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/describe.h"
#include "lockstep/data/gather.h"

namespace lockstep::data {
namespace {

// The samples of a batch must all have the keys, shapes and types of the first one.
void check_alike(const Batch& sample, std::int64_t index, const Batch& first,
                 std::int64_t first_index) {
  for (const auto& [key, tensor] : first) {
    if (!sample.contains(key)) {
      throw DataError("sample {}: no '{}', which sample {} has; it has: {}", index, key,
                      first_index, join(sample.keys(), ", "));
    }
    const torch::Tensor& other = sample[key];
    if (other.sizes() != tensor.sizes() || other.scalar_type() != tensor.scalar_type()) {
      throw DataError("sample {}: '{}' is {}, but that of sample {} is {}", index, key,
                      describe(other), first_index, describe(tensor));
    }
  }
  for (const auto& [key, tensor] : sample) {
    if (!first.contains(key)) {
      throw DataError("sample {}: has '{}', which sample {} has not; that one has: {}", index, key,
                      first_index, join(first.keys(), ", "));
    }
  }
}

}  // namespace

Batch Dataset::gather(std::span<const std::int64_t> indices, Batch reuse) const {
  check_indices(indices, size());
  std::vector<Batch> samples;
  samples.reserve(indices.size());
  for (const std::int64_t index : indices) {
    samples.push_back(sample(index));
    check_alike(samples.back(), index, samples.front(), indices.front());
  }

  Batch batch;
  if (samples.empty()) return batch;
  for (const auto& [key, first] : samples.front()) {
    std::vector<torch::Tensor> parts;
    parts.reserve(samples.size());
    for (const Batch& sample : samples) parts.push_back(sample[key]);
    if (first.device().is_cpu()) {
      std::vector<std::int64_t> shape{static_cast<std::int64_t>(samples.size())};
      shape.insert(shape.end(), first.sizes().begin(), first.sizes().end());
      torch::Tensor out = reuse_or_allocate(reuse, key, shape, first.scalar_type());
      batch.set(key, torch::stack_out(out, parts));
    } else {
      batch.set(key, torch::stack(parts));
    }
  }
  return batch;
}

}  // namespace lockstep::data
