#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/recipe/targets.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

TEST(Models, ASequentialByName) {
  const Example example{.batch = {}, .input = torch::ones({1, 4})};
  const Model model = targets().models.make(
      node("{_target_: Sequential, layers: [{Linear: {out_features: 2}}]}"), example);
  EXPECT_EQ(model(torch::ones({3, 4})).sizes(), torch::IntArrayRef({3, 2}));
}

TEST(Models, ATorchScriptFile) {
  const TemporaryDirectory folder;
  torch::jit::Module module("net");
  module.register_parameter("w", torch::full({1}, 3.0), false);
  module.define("def forward(self, x):\n  return x * self.w\n");
  module.save((folder / "net.pt").string());
  const Model model = targets().models.make(
      node("{_target_: TorchScript, path: " + (folder / "net.pt").string() + "}"), {});
  EXPECT_EQ(model(torch::ones({1})).item<float>(), 3.0f);
  EXPECT_THAT(error_of([] {
                targets().models.make(node("{_target_: TorchScript, path: nowhere.pt}"), {});
              }),
              HasSubstr("nowhere.pt"));
}

// The output's sizes for the input, with the input as the example.
std::vector<std::int64_t> output_sizes(const std::string& text, const torch::Tensor& input) {
  const Example example{.batch = {}, .input = input.narrow(0, 0, 1)};
  return targets().models.make(node(text), example)(input).sizes().vec();
}

TEST(Models, NetworksByName) {
  using Sizes = std::vector<std::int64_t>;
  const auto images = torch::randn({2, 3, 16, 17});
  const auto tokens = torch::ones({2, 5}, torch::kInt64);
  const auto vectors = torch::randn({2, 5, 4});
  EXPECT_EQ(output_sizes("{_target_: MLP, hidden: [8, 4], out: 3}", images), (Sizes{2, 3}));
  for (const std::string depth : {"18", "20", "34", "50"}) {
    EXPECT_EQ(
        output_sizes("{_target_: ResNet" + depth + ", classes: 10}", torch::randn({2, 1, 64, 64})),
        (Sizes{2, 10}))
        << depth;
  }
  EXPECT_EQ(output_sizes("{_target_: UNet, out: 2, width: 8, depth: 2, norm: group}", images),
            (Sizes{2, 2, 16, 17}));
  EXPECT_EQ(output_sizes("{_target_: UNet, out: 2, width: 2, depth: 1, norm: none}",
                         torch::randn({1, 1, 4, 4, 4})),
            (Sizes{1, 2, 4, 4, 4}));
  EXPECT_EQ(output_sizes("{_target_: TransformerClassifier, vocabulary: 9, classes: 3}", tokens),
            (Sizes{2, 3}));
  EXPECT_EQ(output_sizes("{_target_: TransformerTagger, vocabulary: 9, classes: 3}", tokens),
            (Sizes{2, 3, 5}));
  EXPECT_EQ(output_sizes("{_target_: GPT, vocabulary: 9, tokens: 5, tied: false}", tokens),
            (Sizes{2, 9, 5}));
  for (const std::string cell : {"LSTM", "GRU"}) {
    EXPECT_EQ(output_sizes("{_target_: " + cell + "Classifier, vocabulary: 9, classes: 3}", tokens),
              (Sizes{2, 3}));
    EXPECT_EQ(output_sizes("{_target_: " + cell + "Tagger, classes: 3}", vectors),
              (Sizes{2, 3, 5}));
  }
}

TEST(Models, NetworksRefuseWrongOptions) {
  const auto error = [](const std::string& text) {
    return error_of([&] { targets().models.make(node(text), {}); });
  };
  EXPECT_THAT(error("{_target_: ResNet18, channels: 3}"), HasSubstr("classes: expected a number"));
  EXPECT_THAT(error("{_target_: ResNet18, classes: 0, channels: 3}"),
              HasSubstr("it/classes: expected a positive integer, got 0"));
  EXPECT_THAT(error("{_target_: ResNet18, classes: 10}"), HasSubstr("no data to take it from"));
  EXPECT_THAT(error("{_target_: ResNet19, classes: 10}"), HasSubstr("ResNet18"));
  EXPECT_THAT(error("{_target_: UNet, in: 1, out: 1}"), HasSubstr("dimensions"));
  EXPECT_THAT(error("{_target_: UNet, dimensions: 2, in: 1, out: 1, norm: layer}"),
              HasSubstr("expected batch or instance or group or none, got 'layer'"));
  EXPECT_THAT(error("{_target_: GPT, vocabulary: 9, width: 10}"),
              HasSubstr("it/width: expected a multiple of heads = 4, got 10"));
  EXPECT_THAT(error("{_target_: LSTMTagger, vocabulary: 9, features: 2, classes: 3}"),
              HasSubstr("got both"));
}

}  // namespace
}  // namespace lockstep::recipe
