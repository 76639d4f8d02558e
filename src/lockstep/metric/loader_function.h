// A metric from a function of the outputs and targets of a whole loader.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/metric/loader_rows.h"
#include "lockstep/metric/metric.h"

namespace lockstep::metric {

struct LoaderFunctionOptions {
  // Its name. Required.
  std::string name = "";
  // Gets all outputs and all targets of the loader on the CPU, one row per sample. Required.
  std::function<double(const torch::Tensor& outputs, const torch::Tensor& targets)> function = {};
  // Which of two values is better, if that is known.
  std::optional<Better> better = std::nullopt;
};

// For metrics that cannot be computed from parts: `name` is the function of all samples, NaN if
// there are none. The rows are in the order of the batches and their shards, so the result does not
// depend on the number of workers. All outputs and targets are kept in memory, those of the other
// ranks are sent to rank 0 at the end, and a checkpoint inside an epoch contains them. If a metric
// has a class of its own, use that.
class LoaderFunction final : public OutputMetric {
 public:
  explicit LoaderFunction(LoaderFunctionOptions options);

  // Without begin(), each update() is the batch after the one before.
  void begin(const Place& place) override { rows_.begin(place); }
  void update(const torch::Tensor& outputs, const torch::Tensor& targets) override {
    rows_.add(outputs, targets);
  }

  std::vector<std::string> names() const override { return {options_.name}; }
  std::optional<Better> better(std::string_view) const override { return options_.better; }
  void reset() override { rows_.reset(); }
  Metrics compute() const override;
  StateDict state() const override { return rows_.state(); }
  void load_state(const StateDict& state) override { rows_.load_state(state); }
  void merge(const StateDict& other) override { rows_.merge(other); }

 private:
  LoaderFunctionOptions options_;
  LoaderRows rows_;
};

}  // namespace lockstep::metric
