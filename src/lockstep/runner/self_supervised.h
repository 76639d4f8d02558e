// The runner for training without targets: two random variants of each sample go through the model,
// and the criterion compares their projections.
//
//   ls::SelfSupervisedRunner runner({.augment = ls::data::Lambda(
//       [](const torch::Tensor& x) { return x + 0.1 * torch::randn_like(x); })});
//   runner.train({.model = …, .criterion = ls::NTXentLoss(), …});
//
// A batch then has "augment_left" and "augment_right", and for each of both the outputs of the
// model: "projection_left", "projection_right", "embedding_left", "embedding_right".
//
// A contrastive loss compares the samples of a batch with each other. If a batch is split into
// shards, the loss is that of each shard: a sample is compared with those of its shard only, and
// results depend on the number of shards (but not on the number of workers).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/transform.h"
#include "lockstep/runner/runner.h"

namespace lockstep {

struct SelfSupervisedKeys {
  std::string input_key = "features";            // is augmented; the input of predict_loader
  std::string augment_prefix = "augment";        // of the two variants of the input
  std::string embedding_prefix = "embedding";    // of the first of the model's two outputs
  std::string projection_prefix = "projection";  // of the second output, or of the only one
  std::string loss_key = "loss";                 // the criterion's result
  // Makes a random variant of a batch of inputs, and is called twice. Its random numbers are those
  // of LibTorch's generators, which the loop seeds for each shard. None: the batch has both
  // variants already, under augment_prefix with "_left" and "_right".
  data::TransformPtr augment = {};
};

class SelfSupervisedRunner : public Runner {
 public:
  // Throws ConfigError for an empty key and for two equal ones.
  explicit SelfSupervisedRunner(SelfSupervisedKeys keys = {});

  const SelfSupervisedKeys& keys() const { return keys_; }

  std::optional<std::vector<std::string>> metric_names() const override {
    return std::vector<std::string>();
  }

 protected:
  void handle_batch(State& state) override;
  // The outputs of the input itself, which is not augmented: "embedding" and "projection".
  Batch predict_batch(const Model& model, const Batch& batch) override;
  std::string loss_key() const override { return keys_.loss_key; }

 private:
  void augment(Batch& batch) const;
  // Sets the model's outputs for `input` in `to`, under their prefixes with `side`.
  void forward(const Model& model, const torch::Tensor& input, const std::string& side,
               Batch& to) const;

  SelfSupervisedKeys keys_;
};

}  // namespace lockstep
