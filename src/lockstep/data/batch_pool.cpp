#include "lockstep/data/batch_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep::data {
namespace {

bool held_by_us_alone(const torch::Tensor& tensor) {
  // A tensor that requires a gradient cannot be used again, even if only the pool holds it.
  return tensor.defined() && tensor.device().is_cpu() && tensor.has_storage() &&
         tensor.use_count() == 1 && tensor.storage().use_count() == 1 && !tensor.requires_grad();
}

bool is_unused(const Batch& batch) {
  for (const auto& [key, tensor] : batch) {
    if (!held_by_us_alone(tensor)) return false;
  }
  for (const auto& [key, list] : batch.lists()) {
    for (const torch::Tensor& tensor : list) {
      if (!held_by_us_alone(tensor)) return false;
    }
  }
  return std::ranges::all_of(batch.nested_batches(),
                             [](const auto& entry) { return is_unused(entry.second); });
}

// Memory that LibTorch allocated, and not that of another owner in a tensor (torch::from_blob). Its
// bytes are the values, which is not so in conjugated and negated views.
bool has_own_memory(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && tensor.storage().resizable() &&
         !tensor.is_conj() && !tensor.is_neg();
}

Batch part_with_own_memory(const Batch& batch) {
  Batch part;
  for (const auto& [key, tensor] : batch) {
    if (has_own_memory(tensor)) part.set(key, tensor);
  }
  for (const auto& [key, list] : batch.lists()) {
    if (std::ranges::all_of(list, has_own_memory)) part.set(key, list);
  }
  for (const auto& [key, nested] : batch.nested_batches()) {
    part.set(key, part_with_own_memory(nested));
  }
  return part;
}

}  // namespace

void BatchPool::lend(const Batch& batch) {
  if (capacity_ == 0) return;
  Batch part = part_with_own_memory(batch);
  if (part.empty()) return;
  const std::lock_guard lock(mutex_);
  if (lent_.size() == capacity_) lent_.pop_front();
  lent_.push_back(std::move(part));
}

Batch BatchPool::take() {
  const std::lock_guard lock(mutex_);
  // The newest one, whose memory is most likely still in the processor's cache.
  const auto found = std::find_if(lent_.rbegin(), lent_.rend(), is_unused);
  if (found == lent_.rend()) return {};
  Batch batch = std::move(*found);
  lent_.erase(std::next(found).base());
  return batch;
}

}  // namespace lockstep::data
