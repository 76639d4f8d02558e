// Orders in which rare classes come as often as frequent ones:
//
//   const auto labels = labels_of(*train);
//   Loader loader = {train, {.batch_size = 32,
//                            .sampler = std::make_shared<BalanceClassSampler>(labels)}};
//
// All of them are functions of the labels, the options and the epoch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/data/sampler.h"

namespace lockstep::data {

// The samples of each class, by label.
using ClassIndices = std::map<std::int64_t, std::vector<std::int64_t>>;

enum class BalanceMode {
  kMin,  // as many samples of each class as the smallest class has
  kMax,  // as many as the largest class has
};

struct BalanceClassOptions {
  // Or a number of samples of each class.
  std::variant<BalanceMode, std::int64_t> mode = BalanceMode::kMin;
  std::uint64_t seed = 0;
};

// Equally many samples of each class, chosen anew in each epoch, in a random order. A sample comes
// twice in an epoch only if its class has fewer samples than are wanted.
class BalanceClassSampler : public Sampler {
 public:
  // labels[i] is the class of sample i. Throws ConfigError if there are none, or if the number in
  // `mode` is not positive.
  explicit BalanceClassSampler(const std::vector<std::int64_t>& labels,
                               const BalanceClassOptions& options = {});

  std::int64_t samples_per_class() const { return samples_per_class_; }

  std::int64_t size() const override;
  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::string settings() const override;

 private:
  ClassIndices classes_;
  std::string labels_;  // their fingerprint
  std::int64_t samples_per_class_;
  std::uint64_t seed_;
};

struct BatchBalanceClassOptions {
  std::int64_t num_classes = 2;                  // of a batch, chosen at random
  std::int64_t num_samples = 2;                  // of each of these classes
  std::optional<std::int64_t> num_batches = {};  // of an epoch; default: labels / size of a batch
  std::uint64_t seed = 0;
};

// Every batch has num_samples samples of num_classes classes, class by class. For losses that
// compare samples of a batch, such as the triplet loss. The batches of the loader must have
// num_classes * num_samples samples: set its batch_size to this, so that each shard has such a
// batch, or its global_batch_size.
class BatchBalanceClassSampler : public Sampler {
 public:
  // Throws ConfigError if there are fewer classes than num_classes, or if an option is not
  // positive.
  BatchBalanceClassSampler(const std::vector<std::int64_t>& labels,
                           const BatchBalanceClassOptions& options);

  std::int64_t size() const override;
  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::string settings() const override;
  std::optional<std::int64_t> batch_size() const override;

 private:
  ClassIndices classes_;
  std::vector<std::int64_t> known_;  // the labels
  std::string labels_;               // the fingerprint of those of the samples
  BatchBalanceClassOptions options_;
  std::int64_t batches_;
};

struct DynamicBalanceClassOptions {
  double exp_lambda = 0.9;       // how slowly: between 0 and 1
  std::int64_t start_epoch = 0;  // begin as if so many epochs were over
  // No class is more than max_d times as frequent as the rarest one. Default: no limit.
  std::optional<double> max_d = {};
  std::optional<std::int64_t> samples = {};  // of an epoch; default: as many as there are labels
  std::uint64_t seed = 0;
};

// Classes become equally frequent over the epochs. If a class is D times as large as the smallest
// one, it is D^(exp_lambda^(start_epoch + epoch - 1)) times as frequent: D in the first epoch,
// about 1 at the end. Epochs have equally many samples, unlike Catalyst's, so that all have equally
// many batches. A sample comes twice only if its class has fewer samples than are wanted.
class DynamicBalanceClassSampler : public Sampler {
 public:
  // Throws ConfigError if there are no labels or an option makes no sense.
  explicit DynamicBalanceClassSampler(const std::vector<std::int64_t>& labels,
                                      const DynamicBalanceClassOptions& options = {});

  // The number of samples of each class in an epoch, in the order of the labels.
  std::vector<std::int64_t> class_counts(std::int64_t epoch) const;

  std::int64_t size() const override { return size_; }
  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::string settings() const override;

 private:
  ClassIndices classes_;
  std::string labels_;  // their fingerprint
  DynamicBalanceClassOptions options_;
  std::int64_t size_;
};

}  // namespace lockstep::data
