#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include "lockstep/checkpoint/file.h"
#include "lockstep/config/yaml.h"
#include "lockstep/exporting/onnx.h"
#include "lockstep/exporting/onnx_model.h"
#include "lockstep/exporting/torchscript.h"
#include "lockstep/recipe/sequential.h"
#include "lockstep/recipe/targets.h"
#include "tests/command/trained.h"

namespace lockstep::command {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Ran;
using testing::run_command;

class Export : public testing::Trained {
 protected:
  Ran run_export(std::vector<std::string> words) const {
    words.insert(words.begin(), {"export", path("run")});
    return run_command(words);
  }
};

TEST_F(Export, EachFormatHasTheTrainedWeights) {
  train();
  const StateDict trained = checkpoint::load_weights(path("run/checkpoints/best.pth"));
  const auto weight = trained.get<torch::Tensor>("0.weight");

  const Ran script = run_export({"--output", path("model.pt")});
  ASSERT_EQ(script.code, kDone) << script.errors;
  EXPECT_THAT(script.output, AllOf(HasSubstr("batches of 1 and 5"),
                                   HasSubstr("input   features Float [batch, 4]")));
  torch::jit::Module loaded = torch::jit::load(path("model.pt"));
  std::map<std::string, torch::Tensor> named;
  for (const auto& item : loaded.named_parameters()) named[item.name] = item.value;
  EXPECT_TRUE(torch::equal(named.at("0.weight"), weight));
  const torch::Tensor x = torch::randn({9, 4});
  const torch::Tensor expected = torch::linear(x, weight, trained.get<torch::Tensor>("0.bias"));
  EXPECT_TRUE(torch::allclose(loaded.forward({x}).toTensor(), expected));

  const Ran onnx = run_export({"--output", path("model.onnx"), "--opset", "15"});
  ASSERT_EQ(onnx.code, kDone) << onnx.errors;
  EXPECT_THAT(onnx.output,
              AllOf(HasSubstr("onnx opset 15"), HasSubstr("output  logits Float [batch, 3]")));
  EXPECT_EQ(exporting::decode(read_file(path("model.onnx"))).opset, 15);

  for (const char* const name : {"weights.safetensors", "weights.pth"}) {
    ASSERT_EQ(run_export({"--output", path(name)}).code, kDone);
    const StateDict written = checkpoint::load_weights(path(name));
    EXPECT_EQ(written.size(), trained.size());
    EXPECT_TRUE(torch::equal(written.get<torch::Tensor>("0.weight"), weight));
  }
}

TEST_F(Export, TheFormatAloneNamesAFileInTheRun) {
  train();
  for (const auto& [format, file] : {std::pair("onnx", "run/model.onnx"),
                                     {"torchscript", "run/model.pt"},
                                     {"safetensors", "run/model.safetensors"},
                                     {"pth", "run/model.pth"}}) {
    const Ran ran = run_export({"--format", format});
    EXPECT_EQ(ran.code, kDone) << ran.errors;
    EXPECT_TRUE(std::filesystem::exists(path(file))) << file;
  }
  const Ran neither = run_export({});
  EXPECT_EQ(neither.code, kBadUsage);
  EXPECT_THAT(neither.errors, HasSubstr("--format"));
}

// It would lose the state of the optimizer, and the run could not be resumed.
TEST_F(Export, TheCheckpointThatIsReadIsNotReplaced) {
  train();
  const std::string best = path("run/checkpoints/best.pth"), model = path("model.pth");
  std::filesystem::copy_file(best, model);
  const std::string before = read_file(best);
  const auto refused = [&](const std::vector<std::string>& words) {
    const Ran ran = run_command(words);
    EXPECT_EQ(ran.code, kBadUsage);
    EXPECT_THAT(ran.errors, AllOf(HasSubstr("would be replaced"), HasSubstr("--output")));
  };
  refused({"export", model, "--format", "pth"});
  refused({"export", path("run"), "--output", path("run/../run/checkpoints/best.pth")});
  refused({"export", best, "--output", best, "--format", "onnx"});
  EXPECT_EQ(read_file(best), before);
  EXPECT_EQ(read_file(model), before);
  EXPECT_EQ(run_command({"export", model, "--output", path("weights.pth")}).code, kDone);
}

TEST_F(Export, AFileOfOneBatchSize) {
  train();
  const Ran ran = run_export({"--output", path("model.bin"), "--format", "onnx",
                              "--no-dynamic-batch", "--batch-size", "6", "--checkpoint", "last"});
  ASSERT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(ran.output, HasSubstr("features Float [6, 4]"));
}

TEST_F(Export, InputsWithoutData) {
  train();
  const Ran ran = run_export({"--output", path("model.onnx"), "--input-shape", "4"});
  ASSERT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(ran.output, HasSubstr("features Float [batch, 4]"));
  const Ran wrong = run_export({"--output", path("other.onnx"), "--input-shape", "5"});
  EXPECT_EQ(wrong.code, kBadUsage);
  EXPECT_FALSE(std::filesystem::exists(path("other.onnx")));
}

TEST_F(Export, OneNetworkOfSeveral) {
  train({"model=null", "models={first: [{Linear: {out_features: 3}}]}"});
  const Ran ran =
      run_export({"--output", path("first.onnx"), "--model", "first", "--input-shape", "4"});
  ASSERT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(ran.output, HasSubstr("input Float [batch, 4]"));
  ASSERT_EQ(run_export({"--output", path("first.pth"), "--model", "first"}).code, kDone);
  EXPECT_TRUE(checkpoint::load_weights(path("first.pth")).contains("0.weight"));
  const Ran without = run_export({"--output", path("second.onnx"), "--model", "first"});
  EXPECT_EQ(without.code, kBadUsage);
  EXPECT_THAT(without.errors, HasSubstr("--input-shape"));
  const Ran unknown = run_export({"--output", path("x.pth"), "--model", "fisrt"});
  EXPECT_EQ(unknown.code, kBadUsage);
  EXPECT_THAT(unknown.errors, HasSubstr("fisrt"));
}

TEST_F(Export, MistakesAreFoundBeforeTheRunIsRead) {
  const auto fails = [&](const std::vector<std::string>& words, const std::string& part) {
    const Ran ran = run_export(words);
    EXPECT_EQ(ran.code, kBadUsage);
    EXPECT_THAT(ran.errors, HasSubstr(part));
  };
  fails({"--output", path("model.bin")}, "--format");
  fails({"--output", path("missing/model.onnx")}, "no such folder");
  fails({"--output", path("x.bin"), "--format", "safetensors"}, ".safetensors");
  fails({"--output", path("x.pth"), "--input-shape", "4"}, "no inputs");
  fails({"--output", path("x.pt"), "--opset", "17"}, "--opset");
  fails({"--output", path("x.onnx"), "--batch-size", "3"}, "--no-dynamic-batch");
  fails({"--output", path("x.onnx"), "--no-dynamic-batch", "--batch-size", "0"}, "at least 1");
  EXPECT_EQ(run_command({"export", path("run"), "--output", "x", "--format", "caffe"}).code,
            kBadUsage);
}

// What a config names, its options, and an input.
struct Named {
  std::string name;
  std::string options;
  std::vector<std::int64_t> sizes;
  bool is_integer = false;
};

torch::Tensor input_of(const Named& row) {
  torch::manual_seed(1);
  return row.is_integer ? torch::randint(7, row.sizes, torch::kInt64) : torch::randn(row.sizes);
}

void export_named(const Named& row, const Model& model) {
  const TemporaryDirectory folder;
  const Batch inputs = {{"features", input_of(row)}};
  exporting::to_torchscript(model, inputs, folder / "model.pt");
  exporting::to_onnx(model, inputs, folder / "model.onnx");
}

template <typename Names>
void expect_all_named(const std::vector<Named>& rows, const Names& names) {
  for (const std::string& name : names) {
    EXPECT_TRUE(std::ranges::any_of(rows, [&](const Named& row) { return row.name == name; }))
        << name << " is not tested: add a line for it";
  }
}

TEST(ExportTargets, EveryLayerThatAConfigCanName) {
  const std::vector<Named> rows = {
      {"Linear", "{out_features: 3}", {2, 5, 4}},
      {"Linear", "{out_features: 3, bias: false}", {2, 4}},
      {"Conv1d",
       "{out_channels: 4, kernel_size: 3, stride: 2, padding: 1, dilation: 2}",
       {2, 3, 12}},
      {"Conv2d",
       "{out_channels: 4, kernel_size: [3, 2], padding: [1, 0], groups: 2, bias: false}",
       {2, 4, 7, 6}},
      {"Conv3d", "{out_channels: 3, kernel_size: 2, stride: [1, 2, 1]}", {2, 2, 5, 6, 4}},
      {"ConvTranspose1d",
       "{out_channels: 3, kernel_size: 3, stride: 2, padding: 1, output_padding: 1}",
       {2, 4, 5}},
      {"ConvTranspose2d",
       "{out_channels: 4, kernel_size: [3, 2], stride: 2, groups: 2}",
       {2, 4, 3, 4}},
      {"ConvTranspose3d",
       "{out_channels: 2, kernel_size: 2, padding: 1, stride: 2, bias: false}",
       {2, 2, 3, 3, 4}},
      {"MaxPool1d", "{kernel_size: 3, stride: 2, padding: 1}", {2, 3, 9}},
      {"MaxPool2d", "{kernel_size: [2, 3]}", {2, 3, 6, 7}},
      {"MaxPool3d", "{kernel_size: 2, padding: 1}", {2, 2, 5, 4, 4}},
      {"AvgPool1d", "{kernel_size: 3, stride: 2, padding: 1}", {2, 3, 9}},
      {"AvgPool2d", "{kernel_size: [2, 3], padding: [1, 0]}", {2, 3, 6, 7}},
      {"AvgPool3d", "{kernel_size: 2}", {2, 2, 5, 4, 4}},
      {"AdaptiveAvgPool1d", "{output_size: 3}", {2, 3, 7}},
      {"AdaptiveAvgPool2d", "{output_size: [2, 3]}", {2, 3, 5, 7}},
      {"AdaptiveAvgPool2d", "{output_size: 2}", {2, 3, 4, 6}},
      {"AdaptiveAvgPool3d", "{output_size: 1}", {2, 3, 5, 4, 3}},
      {"BatchNorm1d", "{}", {3, 4}},
      {"BatchNorm1d", "{track_running_stats: false}", {4, 4, 6}},
      {"BatchNorm2d", "{affine: false}", {2, 3, 4, 4}},
      {"BatchNorm3d", "{eps: 0.01}", {2, 3, 4, 4, 2}},
      {"LayerNorm", "{}", {2, 5, 4}},
      {"LayerNorm", "{normalized_shape: [5, 4], elementwise_affine: false}", {2, 5, 4}},
      {"GroupNorm", "{num_groups: 2}", {2, 4, 5, 3}},
      {"Dropout", "{p: 0.3}", {2, 4}},
      {"Dropout2d", "{}", {2, 3, 4, 4}},
      {"Dropout3d", "{}", {2, 3, 4, 4, 2}},
      {"ReLU", "{}", {2, 4}},
      {"LeakyReLU", "{negative_slope: 0.2}", {2, 4}},
      {"ELU", "{alpha: 0.7}", {2, 4}},
      {"GELU", "{}", {2, 4}},
      {"SiLU", "{}", {2, 4}},
      {"Mish", "{}", {2, 4}},
      {"SELU", "{}", {2, 4}},
      {"ReLU6", "{}", {2, 4}},
      {"PReLU", "{}", {2, 4, 3}},
      {"Tanh", "{}", {2, 4}},
      {"Sigmoid", "{}", {2, 4}},
      {"Softplus", "{}", {2, 4}},
      {"Softmax", "{dim: 1}", {2, 4, 3}},
      {"LogSoftmax", "{dim: 2}", {2, 4, 3}},
      {"Flatten", "{start_dim: 2}", {2, 4, 3, 5}},
      {"Unflatten", "{dim: 1, sizes: [2, 3]}", {2, 6}},
      {"Embedding", "{num_embeddings: 7, embedding_dim: 3}", {2, 5}, true},
      {"Identity", "{}", {2, 4}},
      {"GlobalAvgPool", "{}", {2, 3, 4, 5}},
      {"GlobalMaxPool", "{}", {2, 3, 4, 5}},
      {"GlobalConcatPool", "{}", {2, 3, 4}},
      {"GeMPool", "{p: 2.5}", {2, 3, 4, 5}},
      {"GlobalAttentionPool", "{}", {2, 3, 4, 5}},
      {"SqueezeExcitation", "{reduction: 2, spatial: true}", {2, 4, 5, 3}},
      {"RMSNorm", "{}", {2, 5, 4}}};
  for (const Named& row : rows) {
    SCOPED_TRACE(row.name);
    const auto node =
        config::parse_yaml(fmt::format("- {{{}: {}}}", row.name, row.options), "test");
    const Model model(recipe::make_sequential(node, {.batch = {}, .input = input_of(row)}));
    EXPECT_NO_THROW(export_named(row, model));
  }
  expect_all_named(rows, recipe::targets().layers.names());
}

TEST(ExportTargets, EveryModelThatAConfigCanName) {
  const std::vector<Named> rows = {
      {"MLP", "{out: 3, hidden: [5]}", {2, 3, 4}},
      {"ResNet18", "{classes: 3}", {2, 3, 32, 32}},
      {"ResNet20", "{classes: 3}", {2, 3, 16, 16}},
      {"ResNet34", "{classes: 3}", {2, 1, 32, 32}},
      {"ResNet50", "{classes: 3}", {2, 3, 32, 32}},
      {"UNet", "{out: 2, width: 8, depth: 2}", {2, 3, 10, 9}},
      {"TransformerClassifier", "{vocabulary: 7, classes: 3, width: 8, heads: 2}", {2, 5}, true},
      {"TransformerTagger", "{vocabulary: 7, classes: 3, width: 8, heads: 2}", {2, 5}, true},
      {"GPT", "{vocabulary: 7, width: 8, heads: 2, layers: 1}", {2, 5}, true},
      {"LSTMClassifier", "{vocabulary: 7, classes: 3, hidden: 4}", {2, 5}, true},
      {"LSTMTagger", "{features: 4, classes: 3, hidden: 4, bidirectional: true}", {2, 5, 4}},
      {"GRUClassifier", "{vocabulary: 7, classes: 3, hidden: 4, layers: 2}", {2, 5}, true},
      {"GRUTagger", "{vocabulary: 7, classes: 3, hidden: 4}", {2, 5}, true},
      {"CNN3d", "{}", {2, 1, 16, 16, 16}},
      // These consist of other targets.
      {"Sequential", "{layers: [{Linear: {out_features: 2}}, ReLU]}", {2, 4}},
      {"TorchScript", "", {}}};
  for (const Named& row : rows) {
    if (row.name == "TorchScript") continue;  // tests/exporting/onnx_test.cpp
    SCOPED_TRACE(row.name);
    const auto node = config::parse_yaml(fmt::format("{{{}: {}}}", row.name, row.options), "test");
    const torch::Tensor input = input_of(row);
    const Batch batch = {{"features", input}, {"targets", torch::randn({1, 2})}};
    const Model model = recipe::targets().models.make(node, {.batch = batch, .input = input});
    EXPECT_NO_THROW(export_named(row, model));
  }
  expect_all_named(rows, recipe::targets().models.names());
}

}  // namespace
}  // namespace lockstep::command
