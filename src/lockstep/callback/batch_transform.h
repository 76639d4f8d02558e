// Changes batches between the loader and the model, or between the model and the metrics:
//
//   ls::BatchTransformCallback({.transform = ls::data::Lambda([](const torch::Tensor& x) {
//                                 return x + 0.1 * torch::randn_like(x);
//                               }),
//                               .input_key = "features"})
//   ls::BatchTransformCallback({.batch_transform = [](ls::Batch& batch) { … },
//                               .scope = ls::BatchScope::kForward})
//
// A transform of a data set works while batches are loaded, in the background; this one is part of
// the step. Use it for what needs the model's device, its outputs, or several tensors of a batch.
#pragma once

#include <functional>
#include <string>

#include "lockstep/data/transform.h"
#include "lockstep/train/callback.h"

namespace lockstep {

enum class BatchScope {
  kBatchStart,  // before the model gets the batch
  kForward,     // after handle_batch, before metrics get it; in every phase
};

struct BatchTransformCallbackOptions {
  data::TransformPtr transform = {};  // of one tensor; a function is a data::Lambda
  std::function<void(Batch& batch)> batch_transform = {};  // instead: of the whole batch
  BatchScope scope = BatchScope::kBatchStart;
  std::string input_key = "features";  // what `transform` gets
  std::string output_key = "";         // where its result is put; default: input_key
};

// Random numbers in a transform depend on the seed, the batch and the shard, so a run gives the
// same bits for any number of workers, and when it is resumed. It transforms the batches of all
// loaders; to choose some, put it into a ControlFlowCallback.
class BatchTransformCallback : public Callback {
 public:
  // Throws ConfigError for options that contradict each other.
  explicit BatchTransformCallback(BatchTransformCallbackOptions options);

  CallbackTraits traits() const override {
    return {.order = Order::kInternal, .uses_gradients = false, .metric_names = no_metrics()};
  }
  std::string agreed_options() const override;
  void on_batch_start(State& state) override;
  void on_forward(State& state) override;

 private:
  void apply(Batch& batch) const;

  BatchTransformCallbackOptions options_;
};

}  // namespace lockstep
