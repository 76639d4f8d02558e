#include "lockstep/data/length_sampler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/data/draw_indices.h"

namespace lockstep::data {
namespace {

void check_length_option(const char* option, std::int64_t value) {
  // With this limit the size of a pool cannot overflow.
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (value < 1 || value > kMost) {
    throw ConfigError("LengthSampler: {}: expected 1 to {}, got {}", option, kMost, value);
  }
}

}  // namespace

LengthSampler::LengthSampler(std::vector<std::int64_t> lengths, const LengthSamplerOptions& options)
    : lengths_(std::move(lengths)), options_(options) {
  check_length_option("batch_size", options.batch_size);
  check_length_option("batches_per_pool", options.batches_per_pool);
}

std::vector<std::int64_t> LengthSampler::indices(std::int64_t epoch) const {
  SampleRandom random = order_random(options_.seed, epoch);
  std::vector<std::int64_t> shuffled = count_up(size());
  shuffle(shuffled, random);

  const std::int64_t pool = options_.batch_size * options_.batches_per_pool;
  for (std::int64_t first = 0; first < size(); first += pool) {
    std::ranges::stable_sort(
        shuffled.begin() + first, shuffled.begin() + std::min(first + pool, size()), {},
        [&](std::int64_t sample) { return lengths_[static_cast<std::size_t>(sample)]; });
  }

  std::vector<std::int64_t> batches = count_up(size() / options_.batch_size);
  shuffle(batches, random);
  std::vector<std::int64_t> order;
  order.reserve(shuffled.size());
  for (const std::int64_t batch : batches) {
    const auto first = shuffled.begin() + batch * options_.batch_size;
    order.insert(order.end(), first, first + options_.batch_size);
  }
  order.insert(order.end(), shuffled.begin() + std::ssize(order), shuffled.end());
  return order;
}

std::string LengthSampler::settings() const {
  return OptionText()
      .with("batch_size", options_.batch_size)
      .with("batches_per_pool", options_.batches_per_pool)
      .with("seed", options_.seed)
      .with("lengths", fingerprint(lengths_))
      .str();
}

}  // namespace lockstep::data
