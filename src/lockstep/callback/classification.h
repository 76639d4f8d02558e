// Metrics of outputs against targets, over each loader: accuracy, precision/recall/F1, AUC.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/metric/metric.h"
#include "lockstep/train/callback.h"

namespace lockstep {

// Updates a metric with every batch and adds its values to the loader's metrics. Use it as it is,
// or derive from it, to add your own metric.
class MetricCallback : public Callback {
 public:
  struct Keys {
    std::string input_key = "logits";    // the model's outputs in the batch
    std::string target_key = "targets";  // the expected outputs
  };

  // `options`: those of the metric that must be the same on all ranks, as text: see
  // Callback::agreed_options().
  MetricCallback(std::unique_ptr<metric::OutputMetric> metric, Keys keys, std::string options = "");

  CallbackTraits traits() const override;
  std::string agreed_options() const override;
  std::optional<Better> better(std::string_view metric) const override;
  void dry_run(const std::string& loader, Batch& batch) override;
  void on_loader_start(State& state) override;
  void on_batch_end(State& state) override;
  void on_loader_end(State& state) override;
  void gather(comm::Communicator& communicator) override;
  StateDict state() const override;
  void load_state(const StateDict& state) override;

 protected:
  const metric::OutputMetric& metric() const { return *metric_; }
  // For running_metrics(), if the metric costs almost nothing: its values, without deviations.
  Metrics values_so_far() const;

 private:
  std::unique_ptr<metric::OutputMetric> metric_;
  Keys keys_;
  std::string options_;
};

struct AccuracyCallbackOptions {
  std::string input_key = "logits";     // scores [N, C], or predictions [N]
  std::string target_key = "targets";   // labels [N]
  std::vector<std::int64_t> topk = {};  // which k; empty: 1, and 3 and 5 if num_classes allows it
  std::optional<std::int64_t> num_classes = std::nullopt;
  std::string prefix = "";  // before and after the metric's name
  std::string suffix = "";
};

// `accuracy01`, `accuracy03`, `accuracy05`, each with `/std`.
class AccuracyCallback : public MetricCallback {
 public:
  explicit AccuracyCallback(AccuracyCallbackOptions options = {});
  Metrics running_metrics() const override { return values_so_far(); }
};

struct PrecisionRecallF1SupportCallbackOptions {
  std::string input_key = "logits";    // scores [N, C], or predictions [N]
  std::string target_key = "targets";  // labels [N]
  std::int64_t num_classes = 0;        // required
  double zero_division = 0;            // the value of a ratio 0 / 0
  bool per_class = false;              // each class, and its support, in addition to the averages
  std::string prefix = "";
  std::string suffix = "";
};

// `precision/_micro`, `/_macro`, `/_weighted`, and the same of `recall` and `f1`.
class PrecisionRecallF1SupportCallback : public MetricCallback {
 public:
  explicit PrecisionRecallF1SupportCallback(PrecisionRecallF1SupportCallbackOptions options);
};

struct AUCCallbackOptions {
  std::string input_key = "logits";                        // scores [N, C], or [N] of being 1
  std::string target_key = "targets";                      // labels [N], or 0 and 1 as [N, C]
  std::optional<std::int64_t> num_classes = std::nullopt;  // default: from the first batch
  bool per_class = false;  // each class in addition to the averages; needs num_classes
  std::string prefix = "";
  std::string suffix = "";
};

// `auc`, `auc/_micro`, `auc/_macro`, `auc/_weighted`.
class AUCCallback : public MetricCallback {
 public:
  explicit AUCCallback(AUCCallbackOptions options = {});
};

}  // namespace lockstep
