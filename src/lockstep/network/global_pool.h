// Pooling over all positions: from [N, C, …], with any number of dimensions behind the channels, to
// [N, C].
#pragma once

#include <cstdint>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace lockstep::network {

// All of them throw DataError for an input that has no positions.

class GlobalAvgPoolImpl : public torch::nn::Module {
 public:
  torch::Tensor forward(const torch::Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
TORCH_MODULE(GlobalAvgPool);

class GlobalMaxPoolImpl : public torch::nn::Module {
 public:
  torch::Tensor forward(const torch::Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
TORCH_MODULE(GlobalMaxPool);

// The mean and then the maximum of each channel: [N, 2 C].
class GlobalConcatPoolImpl : public torch::nn::Module {
 public:
  torch::Tensor forward(const torch::Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
TORCH_MODULE(GlobalConcatPool);

struct GeMPoolOptions {
  double p = 3.0;         // 1: the mean; the larger, the nearer to the maximum
  double eps = 1e-6;      // smaller values count as this
  bool trainable = true;  // whether p is learned
};

// The generalised mean (mean of x^p)^(1/p) of each channel (Radenović et al. 2018), for image
// retrieval.
class GeMPoolImpl : public torch::nn::Module {
 public:
  // Throws ConfigError for a p or an eps that is not positive.
  explicit GeMPoolImpl(GeMPoolOptions options = {});

  torch::Tensor forward(const torch::Tensor& x);
  void pretty_print(std::ostream& stream) const override;

 private:
  GeMPoolOptions options_;
  torch::Tensor p_;  // a parameter, or a buffer if it is not trained
};
TORCH_MODULE(GeMPool);

// A mean with weights that depend on the position's channels: the softmax over all positions of a
// linear function of them.
class GlobalAttentionPoolImpl : public torch::nn::Module {
 public:
  // Throws ConfigError for a number of channels that is not positive.
  explicit GlobalAttentionPoolImpl(std::int64_t channels);

  torch::Tensor forward(const torch::Tensor& x);

 private:
  torch::nn::Linear score_{nullptr};
};
TORCH_MODULE(GlobalAttentionPool);

}  // namespace lockstep::network
