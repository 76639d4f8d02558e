#include "lockstep/data/dataset.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "lockstep/data/collate.h"
#include "lockstep/data/scaling.h"

namespace lockstep::data {

namespace {

// The epoch for which gather_in_epoch() of a data set is calling gather() in this thread. gather()
// has no key that it could pass on to a sample_in_epoch() that is overridden without it.
struct GatheredEpoch {
  const Dataset* dataset = nullptr;
  EpochKey key = {};
};

GatheredEpoch& gathered_epoch() {
  thread_local GatheredEpoch epoch;
  return epoch;
}

class GatheredEpochScope {
 public:
  explicit GatheredEpochScope(const GatheredEpoch& epoch)
      : before_(std::exchange(gathered_epoch(), epoch)) {}
  ~GatheredEpochScope() { gathered_epoch() = before_; }
  GatheredEpochScope(const GatheredEpochScope&) = delete;
  GatheredEpochScope& operator=(const GatheredEpochScope&) = delete;

 private:
  GatheredEpoch before_;
};

}  // namespace

Batch Dataset::stack_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                              Batch reuse) const {
  static const Collate collate = stack();
  return make_batch(*this, collate, {.indices = indices, .key = key, .reuse = std::move(reuse)});
}

Batch Dataset::gather(std::span<const std::int64_t> indices, Batch reuse) const {
  const GatheredEpoch& epoch = gathered_epoch();
  return stack_in_epoch(indices, epoch.dataset == this ? epoch.key : EpochKey(), std::move(reuse));
}

Batch Dataset::sample_in_epoch(std::int64_t index, const EpochKey&) const {
  return sample(index);
}

Batch Dataset::gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                               Batch reuse) const {
  const GatheredEpochScope scope({.dataset = this, .key = key});
  return gather(indices, std::move(reuse));
}

std::string Dataset::name_of(std::int64_t index) const {
  return fmt::format("sample {}", index);
}

torch::Tensor Dataset::column(std::string_view) const {
  return {};
}

std::vector<std::int64_t> Dataset::examples(std::int64_t count) const {
  std::vector<std::int64_t> indices;
  const std::int64_t samples = size();
  for (std::int64_t i = 0; i < samples && std::ssize(indices) < count; ++i) {
    if (is_here(i)) indices.push_back(i);
  }
  return indices;
}

const Scaling& Dataset::scaling() const {
  static const Scaling none;
  return none;
}

Batch RandomDataset::gather(std::span<const std::int64_t> indices, Batch reuse) const {
  return gather_in_epoch(indices, {}, std::move(reuse));
}

Batch RandomDataset::sample_in_epoch(std::int64_t index, const EpochKey& key) const {
  SampleContext context(key, index);
  return sample(context);
}

Batch RandomDataset::gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                                     Batch reuse) const {
  return stack_in_epoch(indices, key, std::move(reuse));
}

}  // namespace lockstep::data
