// Which class is predicted as which, as an image in TensorBoard.
#pragma once

#include <string>
#include <vector>

#include "lockstep/metric/confusion_matrix.h"
#include "lockstep/train/callback.h"

namespace lockstep {

struct ConfusionMatrixCallbackOptions {
  std::string input_key = "logits";           // scores [N, C], or predictions [N]
  std::string target_key = "targets";         // labels [N]
  std::int64_t num_classes = 0;               // or class_names
  std::vector<std::string> class_names = {};  // default: 0, 1, 2, …
  bool normalized = false;                    // shares of each true class instead of counts
  std::string prefix = "";                    // before "confusion_matrix" in the image's tag
};

class ConfusionMatrixCallback : public Callback {
 public:
  explicit ConfusionMatrixCallback(ConfusionMatrixCallbackOptions options);

  CallbackTraits traits() const override {
    return {.order = Order::kMetric,
            .uses_gradients = false,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  std::string agreed_options() const override;
  void dry_run(const std::string& loader, Batch& batch) override;
  void on_loader_start(State& state) override;
  void on_batch_end(State& state) override;
  void on_loader_end(State& state) override;
  void gather(comm::Communicator& communicator) override;
  StateDict state() const override { return metric_.state(); }
  void load_state(const StateDict& state) override;

  // The counts of the last pass, on rank 0: int64 [C, C], rows true, columns predicted.
  torch::Tensor counts() const { return metric_.counts(); }

 private:
  ConfusionMatrixCallbackOptions options_;  // class_names resolved
  metric::ConfusionMatrix metric_;
};

}  // namespace lockstep
