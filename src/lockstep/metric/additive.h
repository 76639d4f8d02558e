// A named number that comes batch by batch (a loss, a custom metric), averaged over samples.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/metric/metric.h"
#include "lockstep/metric/moments.h"

namespace lockstep::metric {

struct AdditiveOptions {
  // What the number is called: "loss" gives "loss" and "loss/std".
  std::string name = "value";
};

// `k`: the mean of the batch values weighted by their samples. `k/std`: the standard
// deviation of the batch values, each counted once a sample of its batch, over (samples - 1), as
// Catalyst's. NaN without a sample. A batch whose value is NaN or infinite makes both so.
class Additive final : public Metric {
 public:
  explicit Additive(AdditiveOptions options);

  // `weight` is the number of samples that `value` is the mean of.
  void update(double value, std::int64_t weight) { moments_.add(value, weight); }

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
