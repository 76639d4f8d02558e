#include "lockstep/optim/flat_parameters.h"

#include <cmath>
#include <limits>
#include <sstream>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "tests/optim/problem.h"
#include "tests/support/allocated_peak.h"

namespace lockstep::optim {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;
using testing::message_of;

NamedTensors named(const nn::Module& module) {
  NamedTensors parameters;
  for (const auto& item : module.named_parameters()) {
    parameters.emplace_back(item.key(), item.value());
  }
  return parameters;
}

nn::Sequential make_model() {
  torch::manual_seed(1);
  return nn::Sequential(nn::Linear(5, 3), nn::Tanh(), nn::Linear(3, 1));
}

torch::Tensor loss_of(nn::Sequential& model) {
  return model->forward(torch::linspace(-1, 1, 20).reshape({4, 5})).square().mean();
}

TEST(FlatParameters, KeepsIdentityShapeAndValue) {
  auto model = make_model();
  const auto before = named(*model);
  std::vector<torch::Tensor> values;
  for (const auto& [name, parameter] : before) values.push_back(parameter.detach().clone());
  FlatParameters flat(before);
  EXPECT_EQ(flat.size(), 15 + 3 + 3 + 1);
  ASSERT_EQ(flat.buffers().size(), 1u);
  const auto parameters = model->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& slice = flat.buffers()[0].slices[i];
    EXPECT_TRUE(parameters[i].is_same(slice.parameter));
    EXPECT_TRUE(parameters[i].requires_grad() && parameters[i].is_leaf());
    EXPECT_TRUE(torch::equal(parameters[i], values[i]));
    EXPECT_TRUE(torch::equal(slice_view(slice, flat.buffers()[0].values), values[i]));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(parameters[i].data_ptr()) % 64, 0u);
  }
}

TEST(FlatParameters, BackwardAccumulatesInTheFlatGradient) {
  auto model = make_model();
  auto reference = make_model();
  FlatParameters flat(named(*model));
  EXPECT_EQ(flat.grad_norm(), 0.0);
  for (int pass = 0; pass < 2; ++pass) {
    loss_of(model).backward();
    loss_of(reference).backward();
  }
  const auto expected = reference->parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& buffer = flat.buffers()[0];
    EXPECT_TRUE(torch::equal(slice_view(buffer.slices[i], buffer.grads), expected[i].grad()));
  }
  flat.zero_grad();
  EXPECT_EQ(flat.grad_norm(), 0.0);
  EXPECT_EQ(model->parameters()[0].grad().abs().sum().item<float>(), 0.0f);
}

TEST(FlatParameters, AnOptimizerMadeBeforeGoesOn) {
  auto model = make_model();
  auto reference = make_model();
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  torch::optim::SGD reference_optimizer(reference->parameters(), 0.1);
  FlatParameters flat(named(*model));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    loss_of(model).backward();
    flat.collect_grads();
    optimizer.step();
    reference_optimizer.zero_grad();
    loss_of(reference).backward();
    reference_optimizer.step();
  }
  for (std::size_t i = 0; i < model->parameters().size(); ++i) {
    EXPECT_TRUE(torch::equal(model->parameters()[i], reference->parameters()[i]));
  }
  const auto& buffer = flat.buffers()[0];
  EXPECT_TRUE(
      torch::equal(slice_view(buffer.slices[0], buffer.values), reference->parameters()[0]));
}

TEST(FlatParameters, CollectsGradientsThatWereReplaced) {
  const torch::Tensor none = torch::ones({2}).requires_grad_();
  const torch::Tensor other = torch::ones({2}).requires_grad_();
  const torch::Tensor sparse = torch::ones({3, 2}).requires_grad_();
  const torch::Tensor graph = torch::ones({2}).requires_grad_();
  FlatParameters flat({{"none", none}, {"other", other}, {"sparse", sparse}, {"graph", graph}});
  none.mutable_grad().fill_(5.0);
  none.mutable_grad().reset();
  other.mutable_grad() = torch::full({2}, 3.0);
  sparse.mutable_grad() = torch::full({3, 2}, 2.0).to_sparse();
  graph.square().sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
  flat.collect_grads();
  const auto& buffer = flat.buffers()[0];
  const float expected[] = {0.0f, 3.0f, 2.0f, 2.0f};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& slice = buffer.slices[i];
    EXPECT_TRUE(torch::equal(slice_view(slice, buffer.grads),
                             torch::full_like(slice.parameter, expected[i])))
        << slice.name;
    EXPECT_TRUE(slice.parameter.grad().is_same(slice.grad)) << slice.name;
    EXPECT_FALSE(slice.parameter.grad().requires_grad()) << slice.name;
  }
}

TEST(FlatParameters, AccumulatesSparseGradientsOfAnEmbedding) {
  nn::Embedding embedding(nn::EmbeddingOptions(4, 2).sparse(true));
  FlatParameters flat(named(*embedding));
  embedding(torch::tensor({1, 1, 3})).sum().backward();
  flat.collect_grads();
  const auto& buffer = flat.buffers()[0];
  EXPECT_TRUE(torch::equal(slice_view(buffer.slices[0], buffer.grads).sum(1),
                           torch::tensor({0.0f, 4.0f, 0.0f, 2.0f})));
}

TEST(FlatParameters, NoticesParametersThatWereMoved) {
  auto model = make_model();
  FlatParameters flat(named(*model));
  model->to(torch::kFloat64);
  EXPECT_THAT(
      message_of<Error>([&] { flat.collect_grads(); }),
      HasSubstr("parameter 0.weight: its data was replaced (it is now Double [3, 5] on cpu)"));
  const torch::Tensor single = torch::ones({2}).requires_grad_();
  FlatParameters other({{"single", single}});
  single.mutable_grad().fill_(1.0);
  torch::Tensor(single).set_data(torch::zeros({2}));
  EXPECT_THAT(message_of<Error>([&] { other.collect_grads(); }), HasSubstr("parameter single"));
}

TEST(FlatParameters, TakesTiedWeightsOnce) {
  const torch::Tensor tied = torch::ones({4}).requires_grad_();
  FlatParameters flat({{"encoder", tied}, {"decoder", tied}});
  EXPECT_EQ(flat.size(), 4);
  ASSERT_EQ(flat.buffers()[0].slices.size(), 1u);
  EXPECT_EQ(flat.buffers()[0].slices[0].name, "encoder");
}

TEST(FlatParameters, LeavesUndefinedAndEmptyTensorsAlone) {
  const torch::Tensor frozen = torch::ones({4});
  FlatParameters flat({{"frozen", frozen},
                       {"none", torch::Tensor()},
                       {"empty", torch::ones({0, 3}).requires_grad_()},
                       {"live", torch::ones({2}).requires_grad_()}});
  EXPECT_EQ(flat.size(), 6);
  EXPECT_TRUE(frozen.equal(torch::ones({4})));
  EXPECT_FALSE(frozen.grad().defined()) << "it needs no memory for one";
}

TEST(FlatParameters, RefusesWhatItCannotHold) {
  const torch::Tensor base = torch::ones({8});
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    return base.slice(0, begin, end).detach().requires_grad_();
  };
  const auto refusal = [](const NamedTensors& parameters) {
    return message_of<ConfigError>([&] { FlatParameters flat(parameters); });
  };
  EXPECT_THAT(refusal({{"a", part(0, 4)}, {"b", part(0, 4)}}),
              HasSubstr("parameters a and b are two tensors in the same memory"));
  EXPECT_THAT(refusal({{"b", part(3, 8)}, {"a", part(0, 4)}}),
              HasSubstr("parameters a and b overlap in memory"));
  EXPECT_EQ(refusal({{"a", part(0, 4)}, {"b", part(4, 8)}}), "nothing was thrown");
  EXPECT_EQ(refusal({{"a", part(0, 4)}, {"a", part(4, 8)}}),
            "parameter a: two different tensors have this name");
  EXPECT_EQ(refusal({{"a", torch::ones({2}).requires_grad_() * 2}}),
            "parameter a: expected a leaf tensor, got the result of a computation");
  EXPECT_EQ(refusal({{"a", torch::ones({2}, torch::kComplexFloat).requires_grad_()}}),
            "parameter a: expected a dense tensor of real numbers, got Strided ComplexFloat");
}

TEST(FlatParameters, HasABufferForEachType) {
  const torch::Tensor single = torch::ones({3}).requires_grad_();
  const torch::Tensor twofold = torch::ones({3}, torch::kFloat64).requires_grad_();
  const torch::Tensor half = torch::ones({3}, torch::kBFloat16).requires_grad_();
  FlatParameters flat({{"single", single}, {"double", twofold}, {"half", half}});
  ASSERT_EQ(flat.buffers().size(), 3u);
  (single.sum() + 2 * twofold.sum() + 4 * half.sum()).backward();
  EXPECT_DOUBLE_EQ(flat.grad_norm(), std::sqrt(3.0 * (1 + 4 + 16)));
}

TEST(FlatParameters, KeepsStridesThatHaveAMeaning) {
  nn::Conv2d conv(nn::Conv2dOptions(4, 6, 3));
  const torch::Tensor channels_last =
      conv->weight.detach().clone().contiguous(torch::MemoryFormat::ChannelsLast);
  conv->weight.set_data(channels_last);
  const torch::Tensor spread = torch::arange(8.0).slice(0, 0, 8, 2).detach().requires_grad_();
  FlatParameters flat({{"weight", conv->weight}, {"spread", spread}});
  EXPECT_TRUE(conv->weight.is_contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(torch::equal(conv->weight, channels_last));
  EXPECT_TRUE(torch::equal(spread, torch::tensor({0.0f, 2.0f, 4.0f, 6.0f})));
  EXPECT_TRUE(spread.is_contiguous());
  (conv->weight.square().sum() / 2).backward();
  const auto& buffer = flat.buffers()[0];
  EXPECT_TRUE(torch::equal(slice_view(buffer.slices[0], buffer.grads), channels_last));
}

TEST(FlatParameters, AModuleIsSavedAtItsOwnSizeAndOutlivesTheBuffers) {
  const auto saved_size = [](const nn::Sequential& model) {
    std::ostringstream stream;
    torch::save(model, stream);
    return stream.str().size();
  };
  nn::Sequential model(nn::Linear(100, 100), nn::Linear(100, 100));
  const auto size = saved_size(model);
  torch::Tensor before;
  {
    FlatParameters flat(named(*model));
    before = model->parameters()[2].detach().clone();
    EXPECT_EQ(saved_size(model), size);
  }
  EXPECT_TRUE(torch::equal(model->parameters()[2], before));
  EXPECT_EQ(saved_size(model), size);
}

TEST(FlatParameters, GradNormIsTorchsAndDoesNotDependOnThreads) {
  torch::manual_seed(5);
  const torch::Tensor a = torch::zeros({300, 1001}).requires_grad_();
  const torch::Tensor b = torch::zeros({77}).requires_grad_();
  FlatParameters flat({{"a", a}, {"b", b}});
  a.mutable_grad().copy_(torch::randn({300, 1001}));
  b.mutable_grad().copy_(torch::randn({77}));
  const double exact =
      torch::cat({a.grad().flatten(), b.grad()}).to(torch::kFloat64).norm().item<double>();
  const int threads = torch::get_num_threads();
  torch::set_num_threads(1);
  const double alone = flat.grad_norm();
  torch::set_num_threads(2);
  const double together = flat.grad_norm();
  torch::set_num_threads(threads);
  EXPECT_NEAR(alone, exact, 1e-12 * exact);
  EXPECT_EQ(alone, together);
  EXPECT_NEAR(flat.grad_norm_tensor().item<double>(), exact, 1e-12 * exact);
  EXPECT_EQ(flat.grad_norm_tensor().scalar_type(), torch::kFloat64);
}

// As on a GPU: for bfloat16 there are no kernels of our own on the CPU.
TEST(FlatParameters, GradientsWithoutKernelsAreReadInPieces) {
  const std::int64_t count = (std::int64_t{1} << 23) + 5;  // two pieces and a bit
  const torch::Tensor weight = torch::zeros({count}, torch::kBFloat16).requires_grad_();
  const FlatParameters flat({{"weight", weight}});
  weight.mutable_grad().fill_(2);
  double norm = 0;
  const std::int64_t peak_of_norm =
      allocated_peak_of([&] { norm = flat.grad_norm_tensor().item<double>(); });
  EXPECT_DOUBLE_EQ(norm, 2 * std::sqrt(static_cast<double>(count)));
  EXPECT_LT(peak_of_norm, 5 * count) << "all elements as double are 8 bytes each";
  bool finite = false;
  const std::int64_t peak_of_check = allocated_peak_of([&] { finite = flat.all_finite(); });
  EXPECT_TRUE(finite);
  EXPECT_LT(peak_of_check, 3 * count) << "isfinite() of all needs 4 bytes each and more";
  for (const std::int64_t place : {std::int64_t{0}, count / 2 + 7, count - 1}) {
    weight.mutable_grad()[place] = std::numeric_limits<float>::infinity();
    EXPECT_FALSE(flat.all_finite()) << place;
    weight.mutable_grad()[place] = 1;
  }
  EXPECT_TRUE(flat.all_finite());
}

TEST(FlatParameters, WithoutGradientsTheirNormIsZero) {
  const FlatParameters flat({{"frozen", torch::ones({3})}});
  EXPECT_EQ(flat.grad_norm_tensor().item<double>(), 0.0);
}

TEST(ClipFactor, IsClipScaleOnTheDevice) {
  for (const double norm : {0.0, 0.5, 2.0, 1e30}) {
    const torch::Tensor factor = clip_factor(torch::full({}, norm, torch::kFloat64), 1.5);
    EXPECT_DOUBLE_EQ(factor.item<double>(), clip_scale({.norm = norm, .max_norm = 1.5}));
  }
  EXPECT_EQ(message_of<ConfigError>([] { clip_factor(torch::ones({}), 0.0); }),
            "max_norm: expected a positive number, got 0");
}

TEST(FlatParameters, ClipsByValue) {
  const torch::Tensor parameter = torch::zeros({3}).requires_grad_();
  FlatParameters flat({{"p", parameter}});
  parameter.mutable_grad().copy_(torch::tensor({-3.0f, 0.25f, 2.0f}));
  flat.clip_grad_value(0.5);
  EXPECT_TRUE(torch::equal(parameter.grad(), torch::tensor({-0.5f, 0.25f, 0.5f})));
  EXPECT_EQ(message_of<ConfigError>([&] { flat.clip_grad_value(-1.0); }),
            "clip_grad_value: expected a limit that is not negative, got -1");
}

TEST(FlatParameters, NotesWhatBackwardReached) {
  const torch::Tensor a = torch::ones({2}).requires_grad_();
  const torch::Tensor b = torch::ones({2}).requires_grad_();
  FlatParameters flat({{"a", a}, {"b", b}}, {.grad_sets = 2});
  const auto used = [&](std::size_t i) { return flat.buffers()[0].slices[i].used; };
  flat.collect_grads();
  EXPECT_FALSE(used(0) || used(1));
  flat.bind_grads(1);
  b.sum().backward();
  flat.collect_grads();
  EXPECT_TRUE(!used(0) && used(1));
  flat.bind_grads(0);
  flat.collect_grads();
  EXPECT_TRUE(!used(0) && used(1)) << "by one of the sets";
  flat.zero_grad();
  flat.collect_grads();
  EXPECT_FALSE(used(0) || used(1));

  // Marks show which parameters another rank used.
  a.sum().backward();
  flat.collect_grads();
  flat.set_mark(true);
  flat.write_marks(0, 1);
  flat.forget_use();
  const std::int64_t neither[] = {0};
  flat.read_marks(neither);
  EXPECT_FALSE(used(0) || used(1));
  EXPECT_FALSE(flat.mark());
  const std::int64_t both[] = {0, 1};
  flat.read_marks(both);
  EXPECT_TRUE(used(0) && !used(1));
  EXPECT_TRUE(flat.mark()) << "the caller's own";
}

TEST(FlatParameters, FrozenOnesGetMemoryForGradientsWhenTheyAreUnfrozen) {
  const torch::Tensor trained = torch::ones({2}).requires_grad_();
  const torch::Tensor frozen = torch::ones({3});
  const torch::Tensor view = torch::ones({4});
  const torch::Tensor integers = torch::ones({4}, torch::kInt64);
  FlatParameters flat({{"trained", trained},
                       {"frozen", frozen},
                       {"view", view.detach().narrow(0, 0, 2)},
                       {"same", view},
                       {"integers", integers}});
  ASSERT_EQ(flat.buffers().size(), 2U);
  EXPECT_FALSE(flat.buffers()[1].is_trainable());
  EXPECT_EQ(flat.left_alone().size(), 3U);
  EXPECT_FALSE(flat.make_unfrozen_trainable());
  EXPECT_FALSE(frozen.grad().defined());
  EXPECT_EQ(flat.grad_norm(), 0.0);
  frozen.requires_grad_(true);
  EXPECT_TRUE(flat.make_unfrozen_trainable());
  (2 * frozen).sum().backward();
  flat.collect_grads();
  EXPECT_TRUE(flat.buffers()[1].slices[0].used);
  EXPECT_DOUBLE_EQ(flat.grad_norm(), std::sqrt(12.0));
  view.requires_grad_(true);
  EXPECT_THAT(message_of<ConfigError>([&] { flat.make_unfrozen_trainable(); }),
              HasSubstr("parameter same: it requires a gradient now, but it shares memory"));
}

// As clip_grad_norm_ of PyTorch.
TEST(ClipScale, IsNotANumberIfTheNormIsNot) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(clip_scale({.norm = kNan, .max_norm = 1.0})));
  EXPECT_TRUE(std::isnan(clip_factor(torch::full({}, kNan), 1.0).item<double>()));
  EXPECT_EQ(clip_scale({.norm = kInfinity, .max_norm = 1.0}), 0.0);
  EXPECT_EQ(clip_factor(torch::full({}, kInfinity), 1.0).item<double>(), 0.0);
}

TEST(ClipScale, IsOneBelowTheLimit) {
  EXPECT_EQ(clip_scale({.norm = 0.5, .max_norm = 1.0}), 1.0);
  EXPECT_EQ(clip_scale({.norm = 0.0, .max_norm = 1.0}), 1.0);
  EXPECT_DOUBLE_EQ(clip_scale({.norm = 4.0, .max_norm = 1.0}), 1.0 / (4.0 + 1e-6));
  EXPECT_THROW(clip_scale({.norm = 4.0, .max_norm = 0.0}), ConfigError);
}

}  // namespace
}  // namespace lockstep::optim
