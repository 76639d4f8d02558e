// An additional loss: computed after the forward of every batch, averaged as a metric, and added to
// the trained loss if its weight is not 0.
#pragma once

#include <string>

#include "lockstep/train/callback.h"
#include "lockstep/train/criterion.h"

namespace lockstep {

struct CriterionCallbackOptions {
  Criterion criterion;  // required
  std::string input_key = "logits";
  std::string target_key = "targets";
  std::string metric_key = "criterion";  // its name in the batch and among the metrics
  double weight = 0;                     // of it in the loss; 0: it is only a metric
  std::string loss_key = "loss";         // the loss it is added to
};

class CriterionCallback : public Callback {
 public:
  explicit CriterionCallback(CriterionCallbackOptions options);

  CallbackTraits traits() const override;
  std::string agreed_options() const override;
  std::optional<Better> better(std::string_view metric) const override;
  void dry_run(const std::string& loader, Batch& batch) override;
  void on_run_start(State& state) override;
  void on_forward(State& state) override;

 private:
  CriterionCallbackOptions options_;
};

}  // namespace lockstep
