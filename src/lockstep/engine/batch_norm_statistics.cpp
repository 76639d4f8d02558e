#include "lockstep/engine/batch_norm_statistics.h"

#include <torch/utils.h>

#include "lockstep/engine/sync_batch_norm.h"

namespace lockstep {
namespace {

// It is global because LibTorch calls batch norm and gives it nothing of ours.
thread_local BatchNormStatistics* measuring = nullptr;

}  // namespace

BatchNormStatistics::BatchNormStatistics(const NamedTensors& buffers,
                                         comm::Communicator& communicator, int shards)
    : communicator_(communicator), shards_(shards) {
  std::int64_t size = 0;
  for (const auto& [name, buffer] : buffers) {
    if (!buffer.is_floating_point()) continue;
    index_[buffer.unsafeGetTensorImpl()] = buffers_.size();
    buffers_.push_back(buffer);
    offsets_.push_back(size);
    size += buffer.numel() + 1;
  }
  offsets_.push_back(size);
  const comm::LeafRange own =
      comm::leaves_of({.rank = communicator.rank(), .size = communicator.size()}, shards);
  for (int i = 0; i < own.count(); ++i) sums_.push_back(torch::zeros({size}, torch::kFloat64));
}

BatchNormStatistics::Scope::Scope(BatchNormStatistics& statistics, int local)
    : previous_(measuring) {
  replace_batch_norm();
  statistics.local_ = static_cast<std::size_t>(local);
  measuring = &statistics;
}

BatchNormStatistics::Scope::~Scope() {
  measuring = previous_;
}

BatchNormStatistics* BatchNormStatistics::current() {
  return measuring;
}

void BatchNormStatistics::note(const torch::Tensor& buffer) {
  const auto found = index_.find(buffer.unsafeGetTensorImpl());
  if (found == index_.end()) return;  // not the model's
  const torch::NoGradGuard no_grad;
  const std::int64_t begin = offsets_[found->second];
  const torch::Tensor& sum = sums_[local_];
  sum.narrow(0, begin, buffer.numel()).add_(buffer.detach().cpu().to(torch::kFloat64).flatten());
  sum[begin + buffer.numel()] += 1;
}

bool BatchNormStatistics::write() {
  const torch::NoGradGuard no_grad;
  const std::int64_t size = offsets_.back();
  if (size == 0) return false;
  const torch::Tensor total = torch::empty({size}, torch::kFloat64);
  communicator_.sum_parts({.leaves = shards_, .tensors = sums_}, total);
  bool any = false;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const std::int64_t count = buffers_[i].numel();
    const auto batches = total[offsets_[i] + count].item<double>();
    if (batches == 0) continue;
    any = true;
    buffers_[i].copy_((total.narrow(0, offsets_[i], count) / batches).view(buffers_[i].sizes()));
  }
  return any;
}

}  // namespace lockstep
