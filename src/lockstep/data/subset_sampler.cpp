#include "lockstep/data/subset_sampler.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/data/draw_indices.h"

namespace lockstep::data {

SubsetRandomSampler::SubsetRandomSampler(std::vector<std::int64_t> indices,
                                         const RandomSamplerOptions& options)
    : indices_(std::move(indices)), options_(options) {
  for (const std::int64_t index : indices_) {
    if (index < 0) {
      throw ConfigError("SubsetRandomSampler: indices: expected 0 or more, got {}", index);
    }
  }
}

std::vector<std::int64_t> SubsetRandomSampler::indices(std::int64_t epoch) const {
  std::vector<std::int64_t> order = RandomSampler(size(), options_).indices(epoch);
  for (std::int64_t& index : order) index = indices_[static_cast<std::size_t>(index)];
  return order;
}

std::string SubsetRandomSampler::settings() const {
  return OptionText().with("seed", options_.seed).with("indices", fingerprint(indices_)).str();
}

}  // namespace lockstep::data
