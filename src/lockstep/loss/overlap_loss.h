// Losses that measure how well predicted regions overlap with the true ones: Dice, IoU (Jaccard)
// and Tversky. For segmentation, where most pixels belong to the background.
//
// All of them are 1 - (t + s) / (t + a p + b n + s), where t is the sum of the probabilities of
// pixels that belong to the class, p of those that do not (false positives), n the rest of the
// class (false negatives), and s = `smooth`. Dice has a = b = 0.5, IoU a = b = 1.
//
// By default there is one such number for each class of each sample, and the loss is their mean, so
// it is exactly a mean over samples. With `batch`, sums go over all samples of a shard.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "lockstep/loss/over.h"

namespace lockstep {

// How scores become probabilities.
enum class Probabilities {
  kSoftmax,  // of all classes; targets are classes [N, …], or probabilities of the scores' shape
  kSigmoid,  // of each class alone; targets are in [0, 1] and have the scores' shape
  kNone,     // they are probabilities already; targets as for kSigmoid, or classes
};

struct OverlapLossOptions {
  Probabilities probabilities = Probabilities::kSoftmax;
  double smooth = 1e-5;                           // so that an empty class is no division by zero
  bool batch = false;                             // sums over the samples of a shard
  std::vector<double> weight = {};                // of each class; none: all the same
  std::optional<std::int64_t> ignore_index = {};  // pixels of this class do not count
};

struct TverskyLossOptions {
  OverlapLossOptions overlap = {};
  double false_positives = 0.3;  // their weight, a
  double false_negatives = 0.7;  // their weight, b; more than a: small regions are not missed
  double gamma = 1.0;            // the loss is (1 - index)^(1 / gamma); 4/3: focal Tversky
};

// For scores [N, C, …].
class OverlapLossImpl : public torch::nn::Module, public StatedLoss {
 public:
  // Throws ConfigError if the shapes do not fit.
  torch::Tensor forward(const torch::Tensor& scores, const torch::Tensor& targets) const;
  bool mixes_samples() const override { return options_.overlap.batch; }
  void pretty_print(std::ostream& stream) const override;

 protected:
  // Throws ConfigError for a value out of its range.
  OverlapLossImpl(std::string name, TverskyLossOptions options);

 private:
  torch::Tensor target_shares(const torch::Tensor& scores, const torch::Tensor& targets) const;

  std::string name_;
  TverskyLossOptions options_;
  torch::Tensor weight_;  // a buffer; undefined without weights
};

class DiceLossImpl : public OverlapLossImpl {
 public:
  explicit DiceLossImpl(OverlapLossOptions options = {});
};
TORCH_MODULE(DiceLoss);

class IoULossImpl : public OverlapLossImpl {
 public:
  explicit IoULossImpl(OverlapLossOptions options = {});
};
TORCH_MODULE(IoULoss);

class TverskyLossImpl : public OverlapLossImpl {
 public:
  explicit TverskyLossImpl(TverskyLossOptions options = {});
};
TORCH_MODULE(TverskyLoss);

}  // namespace lockstep
