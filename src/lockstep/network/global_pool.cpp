#include "lockstep/network/global_pool.h"

#include <ostream>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"

namespace lockstep::network {
namespace {

// [N, C, positions]
torch::Tensor positions(const char* layer, const torch::Tensor& x) {
  if (x.dim() < 3) {
    throw DataError("{}: expected an input [N, C, …] with positions to pool over, got {}", layer,
                    data::describe(x));
  }
  return x.flatten(2);
}

}  // namespace

torch::Tensor GlobalAvgPoolImpl::forward(const torch::Tensor& x) {
  return positions("GlobalAvgPool", x).mean(-1);
}

void GlobalAvgPoolImpl::pretty_print(std::ostream& stream) const {
  stream << "GlobalAvgPool()";
}

torch::Tensor GlobalMaxPoolImpl::forward(const torch::Tensor& x) {
  return positions("GlobalMaxPool", x).amax(-1);
}

void GlobalMaxPoolImpl::pretty_print(std::ostream& stream) const {
  stream << "GlobalMaxPool()";
}

torch::Tensor GlobalConcatPoolImpl::forward(const torch::Tensor& x) {
  const torch::Tensor flat = positions("GlobalConcatPool", x);
  return torch::cat({flat.mean(-1), flat.amax(-1)}, 1);
}

void GlobalConcatPoolImpl::pretty_print(std::ostream& stream) const {
  stream << "GlobalConcatPool()";
}

GeMPoolImpl::GeMPoolImpl(GeMPoolOptions options) : options_(options) {
  const Check check("GeMPool");
  check.positive("p", options_.p);
  check.positive("eps", options_.eps);
  const torch::Tensor p = torch::full({1}, options_.p);
  p_ = options_.trainable ? register_parameter("p", p) : register_buffer("p", p);
}

torch::Tensor GeMPoolImpl::forward(const torch::Tensor& x) {
  return positions("GeMPool", x).clamp_min(options_.eps).pow(p_).mean(-1).pow(1 / p_);
}

void GeMPoolImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("GeMPool(p={}, eps={}, trainable={})", options_.p, options_.eps,
                        options_.trainable);
}

GlobalAttentionPoolImpl::GlobalAttentionPoolImpl(std::int64_t channels) {
  Check("GlobalAttentionPool").count("channels", channels);
  score_ = register_module("score", torch::nn::Linear(channels, 1));
}

torch::Tensor GlobalAttentionPoolImpl::forward(const torch::Tensor& x) {
  const torch::Tensor flat = positions("GlobalAttentionPool", x);
  const torch::Tensor weights = torch::softmax(score_(flat.transpose(1, 2)), 1);
  return flat.bmm(weights).squeeze(-1);
}

}  // namespace lockstep::network
