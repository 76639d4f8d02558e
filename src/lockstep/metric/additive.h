// A named number that is given batch by batch (a loss, a custom metric). It is averaged over
// samples, or over what else the values of the batches are means over.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/metric/metric.h"
#include "lockstep/metric/moments.h"

namespace lockstep::metric {

struct AdditiveOptions {
  // The name of the number: "loss" gives "loss" and "loss/std".
  std::string name = "value";
};

// `k`: the mean of the batch values, each weighted by what it is a mean over. `k/std`: the standard
// deviation of the batch values with the same weights, over (samples - 1), as in Catalyst. Both are
// NaN if no sample counts. If the value of a batch is NaN or infinite, so are both.
class Additive final : public Metric {
 public:
  explicit Additive(AdditiveOptions options);

  // `value` is a mean over `samples`.
  void update(double value, std::int64_t samples) { moments_.add(value, samples); }
  // `value` is a mean over something else.
  void update(const WeightedValue& weighted) { moments_.add(weighted); }

  std::int64_t samples() const { return moments_.samples(); }

  std::vector<std::string> names() const override;
  void reset() override { moments_ = {}; }
  Metrics compute() const override;
  StateDict state() const override;
  void load_state(const StateDict& state) override;
  void merge(const StateDict& other) override;

 private:
  AdditiveOptions options_;
  Moments moments_;
};

}  // namespace lockstep::metric
