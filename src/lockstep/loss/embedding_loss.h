// Losses of metric learning, for embeddings [N, D] and labels [N]: samples with the same label are
// to be near to each other, others far away. And BarlowTwinsLoss, for two embeddings of each
// sample.
//
// All of them compare the samples of a shard with each other. With several shards, a step has fewer
// pairs than with one shard of all its samples, and the loss is another one: the mean of the
// shards' losses. A run with several shards warns about it.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "lockstep/loss/over.h"

namespace lockstep {

struct ContrastiveLossOptions {
  double margin = 1.0;  // the distance from which on two labels are far enough from each other
};

// The mean over all pairs of d^2 / 2 for equal labels, and of max(0, margin - d)^2 / 2 for others,
// where d is the Euclidean distance (Hadsell et al. 2006).
class ContrastiveLossImpl : public torch::nn::Module, public StatedLoss {
 public:
  // Throws ConfigError for a margin that is not positive.
  explicit ContrastiveLossImpl(ContrastiveLossOptions options = {});

  // Throws ConfigError if these are not [N, D] and integers [N]; so do the others.
  torch::Tensor forward(const torch::Tensor& embeddings, const torch::Tensor& labels) const;
  bool mixes_samples() const override { return true; }
  void pretty_print(std::ostream& stream) const override;

 private:
  ContrastiveLossOptions options_;
};
TORCH_MODULE(ContrastiveLoss);

// Which triplets of an anchor, a sample with its label and one with another are used.
enum class TripletMining {
  kHard,  // of each anchor, the farthest with its label and the nearest with another
  kAll,   // all that are within the margin
};

struct TripletLossOptions {
  double margin = 0.3;  // by which another label is farther away than the same one
  TripletMining mining = TripletMining::kHard;
};

// The mean of max(0, d(same label) - d(other label) + margin) over the triplets (Schroff et al.
// 2015, Hermans et al. 2017). Zero if there is no triplet.
class TripletLossImpl : public torch::nn::Module, public StatedLoss {
 public:
  // Throws ConfigError for a negative margin.
  explicit TripletLossImpl(TripletLossOptions options = {});

  torch::Tensor forward(const torch::Tensor& embeddings, const torch::Tensor& labels) const;
  bool mixes_samples() const override { return true; }
  void pretty_print(std::ostream& stream) const override;

 private:
  TripletLossOptions options_;
};
TORCH_MODULE(TripletLoss);

struct MarginLossOptions {
  double beta = 1.0;   // the distance between near and far
  double alpha = 0.2;  // the margin on both sides of it
};

// The mean over all pairs of max(0, alpha + d - beta) for equal labels, and of max(0, alpha - d +
// beta) for others (Wu et al. 2017, with the same beta for all labels).
class MarginLossImpl : public torch::nn::Module, public StatedLoss {
 public:
  // Throws ConfigError for a negative alpha, and for a beta that is not positive.
  explicit MarginLossImpl(MarginLossOptions options = {});

  torch::Tensor forward(const torch::Tensor& embeddings, const torch::Tensor& labels) const;
  bool mixes_samples() const override { return true; }
  void pretty_print(std::ostream& stream) const override;

 private:
  MarginLossOptions options_;
};
TORCH_MODULE(MarginLoss);

struct SupervisedContrastiveLossOptions {
  double temperature = 0.1;  // similarities are divided by it
};

// NTXentLoss with labels (Khosla et al. 2020): every sample has to be more similar to those with
// its label than to all others. A mean over the samples that are not alone with their label; zero
// if there is none.
class SupervisedContrastiveLossImpl : public torch::nn::Module, public StatedLoss {
 public:
  // Throws ConfigError for a temperature that is not positive.
  explicit SupervisedContrastiveLossImpl(SupervisedContrastiveLossOptions options = {});

  torch::Tensor forward(const torch::Tensor& embeddings, const torch::Tensor& labels) const;
  bool mixes_samples() const override { return true; }
  void pretty_print(std::ostream& stream) const override;

 private:
  SupervisedContrastiveLossOptions options_;
};
TORCH_MODULE(SupervisedContrastiveLoss);

struct BarlowTwinsLossOptions {
  double off_diagonal = 0.005;  // weight of the correlations between different features
  double eps = 1e-5;            // added to the variance of a feature
};

// For two projections [N, D] of the same N samples (Zbontar et al. 2021): the sum of (1 - c)^2 over
// the diagonal of their correlation matrix, and of c^2 over the rest, times off_diagonal.
class BarlowTwinsLossImpl : public torch::nn::Module, public StatedLoss {
 public:
  // Throws ConfigError for negative values.
  explicit BarlowTwinsLossImpl(BarlowTwinsLossOptions options = {});

  // Throws ConfigError if the shapes are not equal, or not [N, D].
  torch::Tensor forward(const torch::Tensor& left, const torch::Tensor& right) const;
  bool mixes_samples() const override { return true; }
  void pretty_print(std::ostream& stream) const override;

 private:
  BarlowTwinsLossOptions options_;
};
TORCH_MODULE(BarlowTwinsLoss);

}  // namespace lockstep
