#include "lockstep/data/balanced_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/data/draw_indices.h"

namespace lockstep::data {
namespace {

ClassIndices by_class(std::string_view sampler, const std::vector<std::int64_t>& labels) {
  if (labels.empty()) throw ConfigError("{}: expected the labels of samples, got none", sampler);
  ClassIndices classes;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    classes[labels[i]].push_back(static_cast<std::int64_t>(i));
  }
  return classes;
}

std::int64_t class_size(const ClassIndices::value_type& entry) {
  return static_cast<std::int64_t>(entry.second.size());
}

void check_sampler_option(std::string_view option, std::int64_t value) {
  if (value < 1) throw ConfigError("{}: expected a positive integer, got {}", option, value);
}

// So that the size of an epoch cannot overflow.
constexpr std::int64_t kMostInClass = std::numeric_limits<std::int32_t>::max();

std::int64_t wanted_of_each(const ClassIndices& classes, const BalanceClassOptions& options) {
  if (const auto* const number = std::get_if<std::int64_t>(&options.mode)) {
    if (*number < 1 || *number > kMostInClass) {
      throw ConfigError(
          "BalanceClassSampler: mode: expected min, max or a number of samples from 1 to {}, got "
          "{}",
          kMostInClass, *number);
    }
    return *number;
  }
  const auto [least, most] = std::ranges::minmax_element(classes, {}, class_size);
  return class_size(std::get<BalanceMode>(options.mode) == BalanceMode::kMin ? *least : *most);
}

}  // namespace

BalanceClassSampler::BalanceClassSampler(const std::vector<std::int64_t>& labels,
                                         const BalanceClassOptions& options)
    : classes_(by_class("BalanceClassSampler", labels)),
      labels_(fingerprint(labels)),
      samples_per_class_(wanted_of_each(classes_, options)),
      seed_(options.seed) {}

std::int64_t BalanceClassSampler::size() const {
  return samples_per_class_ * static_cast<std::int64_t>(classes_.size());
}

std::vector<std::int64_t> BalanceClassSampler::indices(std::int64_t epoch) const {
  SampleRandom random = order_random(seed_, epoch);
  std::vector<std::int64_t> order;
  order.reserve(static_cast<std::size_t>(size()));
  for (const auto& [label, samples] : classes_) {
    const auto chosen = choose(samples, samples_per_class_, random);
    order.insert(order.end(), chosen.begin(), chosen.end());
  }
  shuffle(order, random);
  return order;
}

std::string BalanceClassSampler::settings() const {
  return OptionText()
      .with("samples_per_class", samples_per_class_)
      .with("seed", seed_)
      .with("labels", labels_)
      .str();
}

BatchBalanceClassSampler::BatchBalanceClassSampler(const std::vector<std::int64_t>& labels,
                                                   const BatchBalanceClassOptions& options)
    : classes_(by_class("BatchBalanceClassSampler", labels)),
      labels_(fingerprint(labels)),
      options_(options) {
  check_sampler_option("BatchBalanceClassSampler: num_classes", options.num_classes);
  check_sampler_option("BatchBalanceClassSampler: num_samples", options.num_samples);
  if (options.num_classes > static_cast<std::int64_t>(classes_.size())) {
    throw ConfigError(
        "BatchBalanceClassSampler: num_classes: expected at most the {} classes of the labels, got "
        "{}",
        classes_.size(), options.num_classes);
  }
  if (options.num_samples > kMostInClass / options.num_classes) {
    throw ConfigError("BatchBalanceClassSampler: num_samples: expected at most {}, got {}",
                      kMostInClass / options.num_classes, options.num_samples);
  }
  for (const auto& [label, samples] : classes_) known_.push_back(label);
  const std::int64_t whole =
      static_cast<std::int64_t>(labels.size()) / (options.num_classes * options.num_samples);
  batches_ = options.num_batches.value_or(std::max<std::int64_t>(whole, 1));
  check_sampler_option("BatchBalanceClassSampler: num_batches", batches_);
}

std::int64_t BatchBalanceClassSampler::size() const {
  return batches_ * options_.num_classes * options_.num_samples;
}

std::optional<std::int64_t> BatchBalanceClassSampler::batch_size() const {
  return options_.num_classes * options_.num_samples;
}

std::vector<std::int64_t> BatchBalanceClassSampler::indices(std::int64_t epoch) const {
  SampleRandom random = order_random(options_.seed, epoch);
  std::vector<std::int64_t> order;
  order.reserve(static_cast<std::size_t>(size()));
  for (std::int64_t batch = 0; batch < batches_; ++batch) {
    for (const std::int64_t label : choose(known_, options_.num_classes, random)) {
      const auto chosen = choose(classes_.at(label), options_.num_samples, random);
      order.insert(order.end(), chosen.begin(), chosen.end());
    }
  }
  return order;
}

std::string BatchBalanceClassSampler::settings() const {
  return OptionText()
      .with("num_classes", options_.num_classes)
      .with("num_samples", options_.num_samples)
      .with("num_batches", batches_)
      .with("seed", options_.seed)
      .with("labels", labels_)
      .str();
}

DynamicBalanceClassSampler::DynamicBalanceClassSampler(const std::vector<std::int64_t>& labels,
                                                       const DynamicBalanceClassOptions& options)
    : classes_(by_class("DynamicBalanceClassSampler", labels)),
      labels_(fingerprint(labels)),
      options_(options),
      size_(options.samples.value_or(static_cast<std::int64_t>(labels.size()))) {
  check_sampler_option("DynamicBalanceClassSampler: samples", size_);
  if (!(options.exp_lambda > 0 && options.exp_lambda < 1)) {
    throw ConfigError(
        "DynamicBalanceClassSampler: exp_lambda: expected a number between 0 and 1, got {}",
        options.exp_lambda);
  }
  if (options.start_epoch < 0) {
    throw ConfigError("DynamicBalanceClassSampler: start_epoch: expected 0 or more, got {}",
                      options.start_epoch);
  }
  if (options.max_d && !(*options.max_d >= 1)) {
    throw ConfigError("DynamicBalanceClassSampler: max_d: expected a number of at least 1, got {}",
                      *options.max_d);
  }
}

std::vector<std::int64_t> DynamicBalanceClassSampler::class_counts(std::int64_t epoch) const {
  const auto smallest =
      static_cast<double>(class_size(*std::ranges::min_element(classes_, {}, class_size)));
  const double exponent =
      std::pow(options_.exp_lambda, static_cast<double>(options_.start_epoch + epoch - 1));
  std::vector<double> shares;
  for (const auto& entry : classes_) {
    const double ratio = std::pow(static_cast<double>(class_size(entry)) / smallest, exponent);
    shares.push_back(std::min(ratio, options_.max_d.value_or(ratio)));
  }
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);

  // Rounded down; the samples that are left go to the classes that lost most by it.
  std::vector<std::int64_t> counts;
  std::vector<std::size_t> by_loss(shares.size());
  std::iota(by_loss.begin(), by_loss.end(), std::size_t{0});
  for (double& share : shares) {
    share *= static_cast<double>(size_) / total;
    counts.push_back(static_cast<std::int64_t>(share));
    share -= static_cast<double>(counts.back());
  }
  std::ranges::stable_sort(by_loss, std::ranges::greater(),
                           [&](std::size_t c) { return shares[c]; });
  std::int64_t left = size_ - std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  for (std::size_t i = 0; left > 0; i = (i + 1) % by_loss.size(), --left) counts[by_loss[i]] += 1;
  return counts;
}

std::vector<std::int64_t> DynamicBalanceClassSampler::indices(std::int64_t epoch) const {
  SampleRandom random = order_random(options_.seed, epoch);
  const std::vector<std::int64_t> counts = class_counts(epoch);
  std::vector<std::int64_t> order;
  order.reserve(static_cast<std::size_t>(size_));
  std::size_t at = 0;
  for (const auto& [label, samples] : classes_) {
    const auto chosen = choose(samples, counts[at++], random);
    order.insert(order.end(), chosen.begin(), chosen.end());
  }
  shuffle(order, random);
  return order;
}

std::string DynamicBalanceClassSampler::settings() const {
  return OptionText()
      .with("exp_lambda", options_.exp_lambda)
      .with("start_epoch", options_.start_epoch)
      .with("max_d", options_.max_d)
      .with("samples", size_)
      .with("seed", options_.seed)
      .with("labels", labels_)
      .str();
}

}  // namespace lockstep::data
