#include "lockstep/data/mini_epoch_sampler.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"

namespace lockstep::data {

MiniEpochSampler::MiniEpochSampler(std::int64_t dataset_size, const MiniEpochOptions& options)
    : dataset_size_(dataset_size), options_(options) {
  if (dataset_size < 1) {
    throw ConfigError("MiniEpochSampler: expected a data set with samples, got {}", dataset_size);
  }
  const std::int64_t length = options.mini_epoch_length;
  if (length < 1) {
    throw ConfigError("MiniEpochSampler: mini_epoch_length: expected a positive integer, got {}",
                      length);
  }
  const std::int64_t full = dataset_size / length;
  const bool has_rest = dataset_size % length != 0 && !options.drop_last;
  parts_ = std::max<std::int64_t>(full + (has_rest ? 1 : 0), 1);
}

std::vector<std::int64_t> MiniEpochSampler::indices(std::int64_t epoch) const {
  const std::int64_t before = std::max<std::int64_t>(epoch - 1, 0);
  const std::int64_t round = before / parts_;
  const std::int64_t first = before % parts_ * options_.mini_epoch_length;
  const std::vector<std::int64_t> all =
      options_.shuffle == MiniEpochShuffle::kNone
          ? SequentialSampler(dataset_size_).indices(epoch)
          : RandomSampler(dataset_size_, {.seed = options_.seed})
                .indices(options_.shuffle == MiniEpochShuffle::kPerEpoch ? round + 1 : epoch);
  std::vector<std::int64_t> order;
  order.reserve(static_cast<std::size_t>(size()));
  for (std::int64_t k = 0; k < size(); ++k) {
    order.push_back(all[static_cast<std::size_t>((first + k) % dataset_size_)]);
  }
  return order;
}

std::string MiniEpochSampler::settings() const {
  return OptionText()
      .with("dataset_size", dataset_size_)
      .with("drop_last", options_.drop_last)
      .with("shuffle", static_cast<int>(options_.shuffle))
      .with("seed", options_.seed)
      .str();
}

}  // namespace lockstep::data
