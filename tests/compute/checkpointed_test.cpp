#include "lockstep/compute/checkpointed.h"

#include <cstring>
#include <sstream>

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::Tensor;

bool are_same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.detach().contiguous();
  const Tensor y = b.detach().contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

nn::Sequential make_body() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)), nn::BatchNorm2d(4),
                        nn::ReLU(nn::ReLUOptions(true)), nn::Dropout(0.3),
                        nn::Conv2d(nn::Conv2dOptions(4, 2, 3).padding(1)), nn::BatchNorm2d(2));
}

struct Trace {
  Tensor output;
  Tensor input_grad;
  std::vector<Tensor> grads;
  std::vector<Tensor> buffers;
  Tensor next_draw;  // from the generator, after backward()
};

// Two forward passes and one backward(), so that buffers have changed since the first pass.
template <typename Module>
Trace trace_of(Module& module, bool input_needs_grad) {
  torch::manual_seed(5);
  const Tensor input = torch::randn({3, 2, 6, 6}).requires_grad_(input_needs_grad);
  Trace trace;
  trace.output = module->forward(input);
  trace.output = trace.output + module->forward(input * 2);
  (trace.output * torch::randn_like(trace.output)).sum().backward();
  if (input_needs_grad) trace.input_grad = input.grad();
  for (const Tensor& parameter : module->parameters()) trace.grads.push_back(parameter.grad());
  for (const Tensor& buffer : module->buffers()) trace.buffers.push_back(buffer.clone());
  trace.next_draw = torch::rand({8});
  return trace;
}

void expect_same(const Trace& a, const Trace& b) {
  EXPECT_TRUE(are_same_bits(a.output, b.output));
  ASSERT_EQ(a.input_grad.defined(), b.input_grad.defined());
  if (a.input_grad.defined()) {
    EXPECT_TRUE(are_same_bits(a.input_grad, b.input_grad));
  }
  ASSERT_EQ(a.grads.size(), b.grads.size());
  for (std::size_t i = 0; i < a.grads.size(); ++i) {
    ASSERT_TRUE(a.grads[i].defined() && b.grads[i].defined()) << i;
    EXPECT_TRUE(are_same_bits(a.grads[i], b.grads[i])) << i;
  }
  ASSERT_EQ(a.buffers.size(), b.buffers.size());
  for (std::size_t i = 0; i < a.buffers.size(); ++i) {
    EXPECT_TRUE(are_same_bits(a.buffers[i], b.buffers[i])) << i;
  }
  EXPECT_TRUE(are_same_bits(a.next_draw, b.next_draw));
}

nn::Sequential seeded_body() {
  torch::manual_seed(1);
  return make_body();
}

// Dropout, batch norm in training mode, and an input with and without a gradient.
TEST(Checkpointed, HasTheSameBitsAsTheModule) {
  for (const bool input_needs_grad : {false, true}) {
    nn::Sequential plain = seeded_body();
    const Trace expected = trace_of(plain, input_needs_grad);
    auto whole = checkpointed(seeded_body());
    expect_same(trace_of(whole, input_needs_grad), expected);
    // Every layer, one inside of another, and as an AnyModule.
    nn::Sequential layers = seeded_body();
    nn::Sequential each;
    for (nn::AnyModule& layer : *layers) {
      // ReLU changes its input in place.
      each->push_back(each->size() == 2 ? layer : nn::AnyModule(checkpointed(layer).ptr()));
    }
    auto nested = checkpointed(each);
    expect_same(trace_of(nested, input_needs_grad), expected);
  }
}

TEST(Checkpointed, ComputesAgainInBackwardAndKeepsNothing) {
  struct CountingImpl : nn::Module {
    Tensor forward(const Tensor& input) {
      ++calls;
      const Tensor inside = (input * weight).exp();
      activation = inside.getIntrusivePtr();
      return inside.sin();
    }
    Tensor weight = register_parameter("weight", torch::ones({3}));
    c10::weak_intrusive_ptr<c10::TensorImpl> activation{c10::intrusive_ptr<c10::TensorImpl>()};
    int calls = 0;
  };
  const auto module = std::make_shared<CountingImpl>();
  auto wrapped = checkpointed(module);
  const Tensor output = wrapped->forward(torch::ones({3}));
  EXPECT_EQ(module->calls, 1);
  EXPECT_TRUE(module->activation.expired());
  output.sum().backward();
  EXPECT_EQ(module->calls, 2);
  EXPECT_TRUE(module->activation.expired());
  EXPECT_TRUE(module->weight.grad().defined());

  const Tensor plain = module->forward(torch::ones({3}));
  EXPECT_FALSE(module->activation.expired());
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(wrapped->forward(torch::ones({3})).requires_grad());
  EXPECT_EQ(module->calls, 4) << "without gradients there is nothing to compute again";
}

TEST(Checkpointed, HasTheSameNamesAndTensors) {
  nn::Sequential plain = make_body();
  auto wrapped = checkpointed(plain);
  nn::Sequential outer(checkpointed(nn::Linear(2, 3)), nn::ReLU());
  EXPECT_THAT(outer->named_parameters().keys(), ElementsAre("0.weight", "0.bias"));
  EXPECT_EQ(wrapped->named_parameters().keys(), plain->named_parameters().keys());
  EXPECT_EQ(wrapped->named_buffers().keys(), plain->named_buffers().keys());
  for (const auto& item : plain->named_parameters()) {
    EXPECT_TRUE(wrapped->named_parameters()[item.key()].is_same(item.value()));
  }
  std::ostringstream text;
  text << *checkpointed(nn::Linear(2, 3));
  EXPECT_THAT(text.str(), HasSubstr("Checkpointed(torch::nn::Linear(in_features=2"));

  wrapped->eval();
  EXPECT_FALSE(plain->is_training());
  EXPECT_FALSE(plain[1]->is_training());
  wrapped->to(torch::kFloat64);
  EXPECT_EQ(plain->parameters()[0].scalar_type(), torch::kFloat64);
  const auto copy = wrapped->clone();
  EXPECT_EQ(copy->named_parameters().keys(), plain->named_parameters().keys());
  EXPECT_FALSE(copy->parameters()[0].is_same(plain->parameters()[0]));
}

// Several inputs and outputs, some of which need no gradient or are not there.
struct SeveralImpl : nn::Module {
  std::tuple<Tensor, std::vector<Tensor>, Tensor, int> forward(
      const Tensor& x, torch::optional<Tensor> shift, const std::pair<Tensor, double>& scaled,
      bool twice) {
    Tensor y = linear->forward(x) * scaled.first * scaled.second;
    if (shift) y = y + *shift;
    if (twice) y = y * 2;
    return {y.sin(), {y.cos(), y.argmax(1)}, Tensor(), 7};
  }
  nn::Linear linear = register_module("linear", nn::Linear(3, 3));
};
TORCH_MODULE(Several);

TEST(Checkpointed, TakesAndReturnsSeveralTensors) {
  torch::manual_seed(2);
  Several module;
  auto wrapped = checkpointed(module);
  std::vector<std::vector<Tensor>> grads(2);
  for (const bool is_wrapped : {false, true}) {
    for (const bool shifts : {false, true}) {
      module->zero_grad();
      const Tensor x = torch::arange(6.0).view({2, 3}).requires_grad_();
      const Tensor factor = torch::full({3}, 0.5).requires_grad_();
      const torch::optional<Tensor> shift =
          shifts ? torch::optional<Tensor>(torch::ones({3}).requires_grad_()) : torch::nullopt;
      const std::pair<Tensor, double> scaled(factor, 0.3);
      const auto [first, more, none, number] = is_wrapped ? wrapped->forward(x, shift, scaled, true)
                                                          : module->forward(x, shift, scaled, true);
      EXPECT_EQ(number, 7);
      EXPECT_FALSE(none.defined());
      EXPECT_FALSE(more[1].requires_grad());
      EXPECT_EQ(more[1].scalar_type(), torch::kInt64);
      (first.sum() + more[0].square().sum()).backward();
      auto& all = grads[is_wrapped ? 1 : 0];
      all.insert(all.end(), {first.detach(), more[0].detach(), x.grad(), factor.grad(),
                             module->linear->weight.grad().clone()});
      if (shifts) all.push_back(shift->grad());
    }
  }
  ASSERT_EQ(grads[0].size(), grads[1].size());
  for (std::size_t i = 0; i < grads[0].size(); ++i) {
    EXPECT_TRUE(are_same_bits(grads[0][i], grads[1][i])) << i;
  }
  // Only one of the outputs is used.
  module->zero_grad();
  std::get<1>(wrapped->forward(torch::ones({2, 3}), torch::nullopt, {torch::ones({3}), 1.0}, false))
      .front()
      .sum()
      .backward();
  EXPECT_TRUE(module->linear->weight.grad().defined());
}

TEST(Checkpointed, FrozenParametersAndASecondBackwardWork) {
  nn::Linear layer(3, 3);
  layer->bias.requires_grad_(false);
  auto wrapped = checkpointed(layer);
  const Tensor loss = wrapped->forward(torch::ones({2, 3})).sum();
  loss.backward({}, /*retain_graph=*/true);
  const Tensor once = layer->weight.grad().clone();
  loss.backward();
  EXPECT_TRUE(are_same_bits(layer->weight.grad(), once * 2));
  EXPECT_FALSE(layer->bias.grad().defined());
}

// Gradients are added to memory that a run has bound to the parameters.
TEST(Checkpointed, AddsToGradientsInPlace) {
  nn::Linear layer(3, 2);
  const Tensor memory = torch::ones({6});
  layer->weight.mutable_grad() = memory.view({2, 3});
  checkpointed(layer)->forward(torch::full({1, 3}, 2.0)).sum().backward();
  EXPECT_TRUE(memory.equal(torch::full({6}, 3.0)));
}

TEST(Checkpointed, LaterLayersMayChangeTheOutputInPlace) {
  torch::manual_seed(3);
  const Tensor input = torch::randn({4, 6});
  const auto grad_of = [&](bool is_wrapped) {
    const Tensor x = input.clone().requires_grad_();
    // The output of Flatten has the memory of the input.
    nn::Flatten flatten;
    Tensor y = is_wrapped ? checkpointed(flatten)->forward(x * 1) : flatten->forward(x * 1);
    nn::Linear layer(6, 6);
    torch::NoGradGuard no_grad;
    layer->weight.fill_(0.1);
    layer->bias.fill_(0.2);
    const torch::AutoGradMode on(true);
    y = is_wrapped ? checkpointed(layer)->forward(y) : layer->forward(y);
    y.relu_();
    y.sum().backward();
    return x.grad();
  };
  EXPECT_TRUE(are_same_bits(grad_of(true), grad_of(false)));
}

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
void set_autocast(bool on) {
  at::autocast::set_autocast_enabled(torch::kCPU, on);
}
bool has_autocast() {
  return at::autocast::is_autocast_enabled(torch::kCPU);
}
#else
void set_autocast(bool on) {
  at::autocast::set_cpu_enabled(on);
}
bool has_autocast() {
  return at::autocast::is_cpu_enabled();
}
#endif

TEST(Checkpointed, ComputesAgainInThePrecisionOfForward) {
  torch::manual_seed(4);
  nn::Linear layer(8, 8);
  const Tensor input = torch::randn({4, 8});
  const auto grad_of = [&](auto module) {
    layer->zero_grad();
    set_autocast(true);
    const Tensor output = module->forward(input);
    at::autocast::clear_cache();
    set_autocast(false);
    EXPECT_EQ(output.scalar_type(), torch::kBFloat16);
    output.to(torch::kFloat32).square().sum().backward();
    EXPECT_FALSE(has_autocast());
    return layer->weight.grad().clone();
  };
  EXPECT_TRUE(are_same_bits(grad_of(checkpointed(layer)), grad_of(layer)));
}

template <typename Function>
std::string config_error_of(const Function& function) {
  try {
    function();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Checkpointed, SaysWhatItCannotComputeAgain) {
  nn::Linear layer(3, 3);
  auto wrapped = checkpointed(layer);
  const Tensor output = wrapped->forward(torch::ones({2, 3}));
  {
    const torch::NoGradGuard no_grad;
    layer->weight.add_(1);
  }
  EXPECT_THAT(config_error_of([&] { output.sum().backward(); }),
              HasSubstr("was changed between forward and backward()"));
  const Tensor again = wrapped->forward(torch::ones({2, 3}));
  EXPECT_THAT(config_error_of([&] {
                torch::autograd::grad({again.sum()}, {layer->weight}, {}, torch::nullopt, true);
              }),
              HasSubstr("create_graph: expected false"));
  nn::Sequential in_place(nn::ReLU(nn::ReLUOptions(true)), nn::Linear(3, 3));
  EXPECT_THAT(config_error_of([&] {
                checkpointed(in_place)->forward(torch::ones({2, 3}));
              }),
              HasSubstr("changed its input 0 in place"));
  layer->weight.register_hook([](const Tensor& grad) { return grad * 2; });
  EXPECT_THAT(config_error_of([&] {
                wrapped->forward(torch::ones({2, 3}));
              }),
              HasSubstr("parameter 'weight' of torch::nn::LinearImpl has a hook"));
  EXPECT_THAT(config_error_of([] { checkpointed(std::shared_ptr<nn::LinearImpl>()); }),
              HasSubstr("expected a module, got none"));
}

}  // namespace
}  // namespace lockstep
