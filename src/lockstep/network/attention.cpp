#include "lockstep/network/attention.h"

#include <cmath>
#include <limits>

namespace lockstep::network {
namespace {

constexpr double kNotSeen = -std::numeric_limits<double>::infinity();

torch::Tensor drop(const torch::Tensor& values, double dropout) {
  return dropout > 0 ? torch::dropout(values, dropout, /*train=*/true) : values;
}

}  // namespace

// LibTorch 1.13 has no public function for this, so it is two batched products. All heads of all
// sequences are one batch; the scale and the mask are part of the first product.
torch::Tensor attend(const torch::Tensor& qkv, const AttentionOptions& options) {
  const std::int64_t batch = qkv.size(0), tokens = qkv.size(1), width = qkv.size(2) / 3;
  const std::int64_t size = width / options.heads;  // of one head
  const auto parts = qkv.view({batch, tokens, 3, options.heads, size})
                         .permute({2, 0, 3, 1, 4})
                         .reshape({3, batch * options.heads, tokens, size})
                         .unbind(0);
  const torch::Tensor mask =
      options.mask.defined() ? options.mask : torch::zeros({1, 1, 1}, qkv.options());
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  const torch::Tensor weights =
      torch::baddbmm(mask, parts[0], parts[1].transpose(1, 2), /*beta=*/1, /*alpha=*/scale)
          .softmax(-1);
  return drop(weights, options.dropout)
      .bmm(parts[2])
      .view({batch, options.heads, tokens, size})
      .transpose(1, 2)
      .reshape({batch, tokens, width});
}

torch::Tensor transformer_block(const torch::Tensor& input, BlockLayers& layers,
                                const BlockOptions& options) {
  const double p = options.attention.dropout;
  const torch::Tensor qkv =
      torch::linear(layers.norm1->forward(input), layers.qkv_weight, layers.qkv_bias);
  const torch::Tensor x = input + drop(layers.out->forward(attend(qkv, options.attention)), p);
  const torch::Tensor hidden = torch::gelu(layers.up->forward(layers.norm2->forward(x)));
  return x + drop(layers.down->forward(drop(hidden, options.hidden_dropout)), p);
}

torch::Tensor causal_mask(std::int64_t tokens) {
  return torch::full({1, tokens, tokens}, kNotSeen, torch::kFloat32).triu(1);
}

torch::Tensor key_mask(const torch::Tensor& padding, std::int64_t heads,
                       const torch::Tensor& like) {
  if (!padding.defined()) return {};
  const std::int64_t batch = padding.size(0), tokens = padding.size(1);
  return torch::zeros({batch, 1, tokens}, like.options())
      .masked_fill(padding.unsqueeze(1), kNotSeen)
      .repeat_interleave(heads, 0);
}

}  // namespace lockstep::network
