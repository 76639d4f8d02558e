#include "lockstep/exporting/torchscript.h"

#include <gmock/gmock.h>
#include <torch/script.h>

#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

struct PairModelImpl : torch::nn::Module {
  PairModelImpl() {
    inner = register_module(
        "inner", torch::nn::Sequential(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3)));
    scale = register_buffer("scale", torch::full({1}, 2.0));
  }
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& a, const torch::Tensor& b) {
    const torch::Tensor x = inner->forward(a);
    return {x * scale, x + b.unsqueeze(1)};
  }
  torch::nn::Sequential inner{nullptr};
  torch::Tensor scale;
};
TORCH_MODULE(PairModel);

TEST(TorchScript, NamesInputsAndOutputsAreThoseOfTheModel) {
  const TemporaryDirectory folder;
  const Model model = PairModel();
  to_torchscript(model, {{"a", torch::randn({2, 4})}, {"b", torch::randn({2})}},
                 folder / "model.pt");
  EXPECT_TRUE(model.is_training());
  torch::jit::Module loaded = torch::jit::load(folder / "model.pt");
  EXPECT_FALSE(loaded.is_training());
  std::vector<std::string> parameters, buffers;
  for (const auto& item : loaded.named_parameters()) parameters.push_back(item.name);
  for (const auto& item : loaded.named_buffers()) buffers.push_back(item.name);
  EXPECT_THAT(parameters, UnorderedElementsAre("inner.0.weight", "inner.0.bias", "inner.1.weight",
                                               "inner.1.bias"));
  EXPECT_THAT(buffers, UnorderedElementsAre("scale", "inner.1.running_mean", "inner.1.running_var",
                                            "inner.1.num_batches_tracked"));
  // The file has the numbers in eval mode, for any size of a batch.
  model.train(false);
  const torch::Tensor a = torch::randn({7, 4}), b = torch::randn({7});
  const auto outputs = loaded.forward({a, b}).toTuple()->elements();
  EXPECT_TRUE(torch::allclose(outputs[1].toTensor(), model.outputs(a, b)[1]));
}

TEST(TorchScript, ANetworkThatCameAsTorchScriptIsWrittenAsItIs) {
  const TemporaryDirectory folder;
  torch::jit::Module script("Scripted");
  script.register_attribute("training", c10::BoolType::get(), false);
  script.define("def forward(self, x):\n  return x * 2 if x.sum() > 0 else x * 3\n");
  script.save((folder / "in.pt").string());
  const Model model = Model::script(folder / "in.pt");
  to_torchscript(model, {{"x", torch::ones({2, 2})}}, folder / "out.pt");
  torch::jit::Module loaded = torch::jit::load(folder / "out.pt");
  // A trace would have lost the condition.
  EXPECT_EQ(loaded.forward({torch::full({1}, -1.0)}).toTensor().item<double>(), -3);
}

TEST(TorchScript, AFileThatComputesSomethingElseIsNotKept) {
  const TemporaryDirectory folder;
  const Model random =
      testing::Function([](const torch::Tensor& x) { return x + torch::randn_like(x); });
  const std::string message = testing::error_of([&] {
    to_torchscript(random, {{"x", torch::ones({2, 2})}}, folder / "model.pt");
  });
  EXPECT_THAT(message, HasSubstr("is not kept"));
  EXPECT_FALSE(std::filesystem::exists(folder / "model.pt"));
}

// A trace with one size of a batch is right for its example, whatever the model does.
TEST(TorchScript, AFixedBatchSizeIsCheckedWithOtherValuesToo) {
  const TemporaryDirectory folder;
  const Batch inputs = {{"x", torch::ones({1, 4})}};
  const auto write = [&](const testing::FunctionImpl::Function& function) {
    to_torchscript(Model(testing::Function(function)), inputs, folder / "model.pt",
                   {.dynamic_batch = false});
  };
  EXPECT_THAT(testing::error_of(
                  [&] { write([](const torch::Tensor& x) { return x / x.sum().item<float>(); }); }),
              HasSubstr("other values"));
  EXPECT_THAT(
      testing::error_of([&] {
        write([](const torch::Tensor& x) { return x.mean().item<float>() > 0 ? x * 2 : x * 3; });
      }),
      HasSubstr("other values"));
  EXPECT_FALSE(std::filesystem::exists(folder / "model.pt"));
  write([](const torch::Tensor& x) { return x / x.sum(); });
  EXPECT_TRUE(std::filesystem::exists(folder / "model.pt"));
}

}  // namespace
}  // namespace lockstep::exporting
