#include "lockstep/exporting/onnx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/exporting/onnx_model.h"
#include "lockstep/network/gpt.h"
#include "lockstep/network/mlp.h"
#include "lockstep/network/recurrent.h"
#include "lockstep/network/resnet.h"
#include "lockstep/network/transformer.h"
#include "lockstep/network/unet.h"
#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

using network::Cell;
using ::testing::AllOf;
using testing::error_of;
using testing::export_both;
using ::testing::HasSubstr;

torch::Tensor tokens(std::int64_t batch, std::int64_t length, std::int64_t vocabulary) {
  return torch::randint(vocabulary, {batch, length}, torch::kInt64);
}

// Batch norms of a new model change almost nothing, so their statistics are made random.
void randomize_buffers(const Model& model) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : model.buffers()) {
    if (!tensor.is_floating_point()) continue;
    torch::Tensor target = tensor;
    target.copy_(torch::rand_like(tensor) + 0.5);
  }
}

class OnnxNetworks : public ::testing::Test {
 protected:
  OnnxNetworks() { torch::manual_seed(3); }
};

TEST_F(OnnxNetworks, MLP) {
  for (const auto activation :
       {network::Activation::kReLU, network::Activation::kGELU, network::Activation::kTanh}) {
    const Model model = network::make_mlp(
        {.in = 12, .hidden = {8, 7}, .out = 3, .activation = activation, .dropout = 0.1});
    export_both(model, {{"features", torch::randn({2, 3, 4})}});
  }
}

TEST_F(OnnxNetworks, ResNet) {
  for (const std::int64_t depth : {18, 20, 50}) {
    const Model model =
        network::ResNet(network::ResNetOptions{.depth = depth, .classes = 5, .channels = 3});
    randomize_buffers(model);
    export_both(model, {{"features", torch::randn({2, 3, 32, 32})}});
  }
}

TEST_F(OnnxNetworks, UNet) {
  for (const std::int64_t dimensions : {2, 3}) {
    for (const auto norm : {network::UNetNorm::kBatch, network::UNetNorm::kInstance,
                            network::UNetNorm::kGroup, network::UNetNorm::kNone}) {
      const Model model = network::UNet(network::UNetOptions{.dimensions = dimensions,
                                                             .in = 2,
                                                             .out = 3,
                                                             .width = 8,
                                                             .depth = 2,
                                                             .norm = norm,
                                                             .checkpoint_activations = true});
      randomize_buffers(model);
      std::vector<std::int64_t> sizes = {2, 2, 9, 10};
      if (dimensions == 3) sizes.push_back(8);
      export_both(model, {{"features", torch::randn(sizes)}});
    }
  }
}

TEST_F(OnnxNetworks, Transformer) {
  for (const bool per_token : {false, true}) {
    const Model model =
        network::TransformerClassifier(network::TransformerOptions{.vocabulary = 11,
                                                                   .classes = 4,
                                                                   .per_token = per_token,
                                                                   .tokens = 9,
                                                                   .width = 16,
                                                                   .layers = 2,
                                                                   .heads = 2});
    const torch::Tensor input = tokens(3, 7, 11);
    export_both(model, {{"tokens", input}});
    export_both(model, {{"tokens", input}, {"lengths", torch::tensor({7, 2, 4})}});
    const torch::Tensor padding = torch::arange(7).unsqueeze(0) >= torch::tensor({{7}, {2}, {4}});
    export_both(model, {{"tokens", input}, {"padding", padding}});
  }
}

TEST_F(OnnxNetworks, GPT) {
  for (const bool tied : {false, true}) {
    const Model model = network::GPT(network::GPTOptions{
        .vocabulary = 13, .tokens = 8, .width = 16, .layers = 2, .heads = 4, .tied = tied});
    export_both(model, {{"tokens", tokens(2, 6, 13)}});
  }
}

TEST_F(OnnxNetworks, Recurrent) {
  for (const Cell cell : {Cell::kLSTM, Cell::kGRU}) {
    for (const bool per_token : {false, true}) {
      for (const bool bidirectional : {false, true}) {
        const Model model =
            network::Recurrent(network::RecurrentOptions{.cell = cell,
                                                         .vocabulary = 11,
                                                         .classes = 3,
                                                         .per_token = per_token,
                                                         .embedding = 6,
                                                         .hidden = 5,
                                                         .layers = 2,
                                                         .bidirectional = bidirectional,
                                                         .dropout = 0.1});
        const torch::Tensor input = tokens(3, 6, 11);
        export_both(model, {{"tokens", input}});
        export_both(model, {{"tokens", input}, {"lengths", torch::tensor({3, 6, 2})}});
      }
    }
  }
}

TEST_F(OnnxNetworks, VectorsAsInputsOfARecurrentNetwork) {
  const Model model = network::Recurrent(
      network::RecurrentOptions{.cell = Cell::kGRU, .features = 4, .classes = 3, .hidden = 5});
  export_both(model, {{"features", torch::randn({2, 6, 4})}});
}

TEST_F(OnnxNetworks, EveryOperatorSet) {
  const Model transformer = network::TransformerClassifier(network::TransformerOptions{
      .vocabulary = 11, .classes = 4, .tokens = 9, .width = 8, .layers = 1, .heads = 2});
  const Model unet = network::UNet(network::UNetOptions{
      .in = 1, .out = 2, .width = 8, .depth = 1, .norm = network::UNetNorm::kGroup});
  const TemporaryDirectory folder;
  for (std::int64_t opset = kOldestOpset; opset <= kNewestOpset; ++opset) {
    to_onnx(transformer, {{"tokens", tokens(2, 5, 11)}, {"lengths", torch::tensor({5, 2})}},
            folder / "transformer.onnx", {.opset = opset});
    to_onnx(unet, {{"features", torch::randn({2, 1, 6, 6})}}, folder / "unet.onnx",
            {.opset = opset});
    EXPECT_EQ(decode(read_file(folder / "unet.onnx")).opset, opset);
  }
}

struct TwoByTwoImpl : torch::nn::Module {
  TwoByTwoImpl() : fc(register_module("fc", torch::nn::Linear(4, 2))) {}
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& a, const torch::Tensor& b) {
    return {fc(a) + b, fc(a) * b.sum()};
  }
  torch::nn::Linear fc;
};
TORCH_MODULE(TwoByTwo);

TEST(Onnx, SeveralInputsAndOutputsHaveNames) {
  const TemporaryDirectory folder;
  const Model model = TwoByTwo();
  const Exported exported =
      to_onnx(model, {{"image", torch::randn({3, 4})}, {"weather", torch::randn({3, 2})}},
              folder / "model.onnx", {.output_names = {"class", "angle"}});
  const OnnxModel file = decode(read_file(folder / "model.onnx"));
  ASSERT_EQ(file.inputs.size(), 2U);
  EXPECT_EQ(describe(file.inputs[0]), "image Float [batch, 4]");
  EXPECT_EQ(describe(file.outputs[1]), "angle Float [batch, 2]");
  EXPECT_EQ(describe(exported.outputs[0]), "class Float [batch, 2]");
  EXPECT_EQ(exported.checked_sizes, (std::vector<std::int64_t>{1, 5}));
  // The weights keep their names.
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file.initializers) names.push_back(name);
  EXPECT_THAT(names, ::testing::IsSupersetOf({"fc.weight", "fc.bias"}));
}

TEST(Onnx, AFixedBatchIsPartOfTheFile) {
  const TemporaryDirectory folder;
  const Model model = network::make_mlp({.in = 4, .hidden = {3}, .out = 2});
  const Exported exported = to_onnx(model, {{"features", torch::randn({6, 4})}},
                                    folder / "model.onnx", {.dynamic_batch = false});
  EXPECT_EQ(describe(exported.inputs[0]), "features Float [6, 4]");
  EXPECT_EQ(describe(decode(read_file(folder / "model.onnx")).inputs[0]), "features Float [6, 4]");
}

// Other programs take sizes with the same name as equal.
TEST(Onnx, OnlyTheSizeOfTheBatchIsNamedBatch) {
  const TemporaryDirectory folder;
  const auto described = [&](const testing::FunctionImpl::Function& function) {
    const Exported exported = to_onnx(Model(testing::Function(function)),
                                      {{"x", torch::randn({2, 6})}}, folder / "model.onnx");
    const OnnxModel file = decode(read_file(folder / "model.onnx"));
    EXPECT_EQ(describe(file.inputs[0]), "x Float [batch, 6]");
    EXPECT_EQ(describe(file.outputs[0]), describe(exported.outputs[0]));
    return describe(file.outputs[0]);
  };
  EXPECT_EQ(described([](const auto& x) { return x.t() * 2; }), "output Float [6, batch]");
  EXPECT_EQ(described([](const auto& x) {
              return x.view({x.size(0) * 2, 3});
            }),
            "output Float [output_dim_0, 3]");
  EXPECT_EQ(described([](const auto& x) {
              return x.t().expand({x.size(0) + 1, 6, -1});
            }),
            "output Float [output_dim_0, 6, batch]");
}

TEST(Onnx, AnOperationWithoutTranslationIsNamedWithItsLayer) {
  const TemporaryDirectory folder;
  torch::nn::Sequential model(torch::nn::Linear(4, 4),
                              testing::Function([](const torch::Tensor& x) { return x.erfinv(); }));
  const std::string message = error_of([&] {
    to_onnx(Model(model), {{"features", torch::rand({2, 4})}}, folder / "model.onnx");
  });
  EXPECT_THAT(message, AllOf(HasSubstr("aten::erfinv"), HasSubstr("after layer '0'"),
                             HasSubstr("TorchScript")));
  EXPECT_FALSE(std::filesystem::exists(folder / "model.onnx"));
}

TEST(Onnx, OperatorSetsThatAreNotSupportedAreRefused) {
  const Model model = network::make_mlp({.in = 4, .hidden = {3}, .out = 2});
  for (const std::int64_t opset : {12, 22}) {
    const std::string message = error_of([&] {
      to_onnx(model, {{"features", torch::randn({2, 4})}}, "never.onnx", {.opset = opset});
    });
    EXPECT_THAT(message, AllOf(HasSubstr("13 to 21"), HasSubstr(std::to_string(opset))));
  }
}

TEST(Onnx, ANameMayBeUsedOnlyOnce) {
  const Model model = network::make_mlp({.in = 4, .hidden = {3}, .out = 2});
  const std::string message = error_of([&] {
    to_onnx(model, {{"output", torch::randn({2, 4})}}, "never.onnx");
  });
  EXPECT_THAT(message, HasSubstr("'output'"));
}

// The plain file of a network that Python wrote goes through the same translation.
TEST(Onnx, ANetworkThatCameAsTorchScript) {
  const TemporaryDirectory folder;
  const Model model = network::make_mlp({.in = 4, .hidden = {3}, .out = 2});
  const Batch inputs = {{"features", torch::randn({2, 4})}};
  to_torchscript(model, inputs, folder / "model.pt");
  export_both(Model::script(folder / "model.pt"), inputs);
}

}  // namespace
}  // namespace lockstep::exporting
