// Means over the samples of a loader, for metrics that give each sample a value of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/metric/exact_sum.h"
#include "lockstep/metric/metric.h"
#include "lockstep/metric/moments.h"

namespace lockstep::metric {

// For each name: `name`, the mean over all samples, and `name/std`, the standard deviation of the
// batches' means, as Additive computes it. Both are NaN if there is no sample. A derived class adds
// the values of each batch in update().
class SampleMeans : public OutputMetric {
 public:
  std::vector<std::string> names() const override;
  std::optional<Better> better(std::string_view name) const override;
  void reset() override;
  Metrics compute() const override;
  StateDict state() const override;
  void load_state(const StateDict& state) override { tallies_ = read(state); }
  void merge(const StateDict& other) override;

 protected:
  SampleMeans(std::vector<std::string> names, std::optional<Better> better);

  // The values of a batch's samples, for the mean of that index.
  void add(std::size_t index, std::span<const double> values);

  // A mean over the `count` samples of a batch that are not known one by one.
  void add_mean(std::size_t index, double mean, std::int64_t count);

  // A share of a batch: `part` of `whole`. The share of a loader is then one division of two
  // integers.
  void add_share(std::size_t index, std::int64_t part, std::int64_t whole);

 private:
  struct SampleTally {
    ExactSum sum;     // of the values of all samples
    Moments batches;  // of the batches' means, weighted by their samples
  };

  std::vector<SampleTally> read(const StateDict& state) const;

  std::vector<std::string> names_;
  std::optional<Better> better_;
  std::vector<SampleTally> tallies_;
};

}  // namespace lockstep::metric
