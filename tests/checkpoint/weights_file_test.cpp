#include "lockstep/checkpoint/weights_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/pickle.h"
#include "lockstep/state/hash.h"
#include "tests/data/error_text.h"

namespace lockstep::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The tensors of scripts/goldens/checkpoint_safetensors.py, in another order.
StateDict weights_of_every_type() {
  return {
      {"half", torch::tensor({0.5F, 2.F, -1.F}).to(torch::kHalf)},
      {"größe", torch::tensor(2.5F)},
      {"brain", torch::tensor({0.5F, 2.F}).to(torch::kBFloat16)},
      {"fc.weight", torch::arange(6, torch::kFloat32).reshape({2, 3})},
      {"fc.bias", torch::tensor({0.5F, -2.F})},
      {"bn.num_batches_tracked", torch::tensor(std::int64_t{7})},
      {"double", torch::tensor({0.1}, torch::kFloat64)},
      {"complex", torch::complex(torch::tensor({1.F}), torch::tensor({2.F}))},
      {"flags", torch::tensor({1, 0, 1}).to(torch::kBool)},
      {"bytes", torch::tensor({255}, torch::kUInt8)},
      {"small", torch::tensor({-8}, torch::kInt8)},
      {"short", torch::tensor({300}, torch::kInt16)},
      {"int", torch::tensor({-7}, torch::kInt32)},
      {"empty", torch::empty({0, 4})},
  };
}

std::string saving_error(const std::filesystem::path& path, const StateDict& weights) {
  return error_text<Error>([&] { save_weights(path, weights); });
}

TEST(WeightsFile, SafetensorsHaveTheBytesOfThePythonLibrary) {
  const TemporaryDirectory folder;
  save_weights(folder / "a.safetensors", weights_of_every_type());
  EXPECT_EQ(read_file(folder / "a.safetensors"),
            read_file(std::filesystem::path(LOCKSTEP_GOLDENS) / "python" / "weights.safetensors"));
}

TEST(WeightsFile, BothFormatsComeBack) {
  const TemporaryDirectory folder;
  for (const char* const name : {"a.safetensors", "a.pth", "a.pt"}) {
    save_weights(folder / name, weights_of_every_type());
    const StateDict loaded = load_weights(folder / name);
    ASSERT_EQ(loaded.size(), weights_of_every_type().size()) << name;
    for (const auto& [key, value] : weights_of_every_type()) {
      const auto tensor = loaded.get<torch::Tensor>(key);
      EXPECT_EQ(tensor.scalar_type(), value.get_if<torch::Tensor>()->scalar_type()) << key;
      EXPECT_TRUE(tensor.equal(*value.get_if<torch::Tensor>())) << name << " " << key;
    }
  }
}

// Views, and the parts of one memory that flat parameters are.
TEST(WeightsFile, TakesViewsThatDoNotOverlap) {
  const TemporaryDirectory folder;
  const torch::Tensor flat = torch::arange(12.0);
  const StateDict weights = {{"a", flat.narrow(0, 0, 6).view({2, 3})},
                             {"b", flat.narrow(0, 6, 6).view({2, 3}).t()}};
  save_weights(folder / "a.safetensors", weights);
  EXPECT_EQ(content_hash(load_weights(folder / "a.safetensors")),
            content_hash({{"a", torch::arange(6.0).view({2, 3})},
                          {"b", torch::arange(6.0, 12.0).view({2, 3}).t().contiguous()}}));
}

TEST(WeightsFile, SafetensorsRefuseSharedMemoryByName) {
  const TemporaryDirectory folder;
  const torch::Tensor tied = torch::ones({4});
  EXPECT_THAT(saving_error(folder / "a.safetensors", {{"wte", tied}, {"lm_head", tied}}),
              AllOf(HasSubstr("a.safetensors: the weights 'wte' and 'lm_head' share memory"),
                    HasSubstr("save as .pth")));
  EXPECT_THAT(saving_error(folder / "a.safetensors",
                           {{"low", tied.narrow(0, 0, 3)}, {"high", tied.narrow(0, 2, 2)}}),
              HasSubstr("'low' and 'high' share memory"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(WeightsFile, RefusesWhatIsNoWeight) {
  const TemporaryDirectory folder;
  for (const char* const name : {"a.pth", "a.safetensors"}) {
    EXPECT_THAT(saving_error(folder / name, {{"epoch", 3}}),
                AllOf(HasSubstr(name), HasSubstr("'epoch': expected a tensor, got an integer")));
  }
  EXPECT_THAT(
      saving_error(folder / "a.safetensors", {{"x", torch::zeros({1}, torch::kComplexDouble)}}),
      HasSubstr("'x' is a dense tensor of ComplexDouble, which safetensors does not have"));
  EXPECT_THAT(saving_error(folder / "a.safetensors", {{"__metadata__", torch::zeros({1})}}),
              HasSubstr("does not allow this name"));
  EXPECT_THAT(saving_error(folder / "a.onnx", {{"x", torch::zeros({1})}}),
              HasSubstr("ends with .pth, .pt or .safetensors, got '.onnx'"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// Python's load_state_dict refuses a key that the model does not have.
TEST(WeightsFile, PythonsModelTakesIt) {
  if (std::system("/usr/bin/python3 -c 'import torch' 2>/dev/null") != 0) {
    GTEST_SKIP() << "Python cannot import torch; install python3-torch";
  }
  const TemporaryDirectory folder;
  save_weights(folder / "a.pth", {{"0.weight", torch::ones({3, 2})}, {"0.bias", torch::zeros(3)}});
  std::ofstream(folder / "read.py")
      << "import sys, torch\n"
         "model = torch.nn.Sequential(torch.nn.Linear(2, 3))\n"
         "model.load_state_dict(torch.load(sys.argv[1]))\n"
         "assert torch.equal(model(torch.ones(1, 2)), torch.full((1, 3), 2.0))\n";
  const std::string command =
      "/usr/bin/python3 " + (folder / "read.py").string() + " " + (folder / "a.pth").string();
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace lockstep::checkpoint
