#include "lockstep/checkpoint/tensor_file.h"

#include <cmath>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"
#include "tests/support/damage.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TensorFile, RowsAreSamples) {
  const TemporaryDirectory folder;
  checkpoint::save(folder / "d.pt",
                   StateDict{{"x", torch::arange(6).reshape({3, 2})}, {"y", torch::arange(3)}});
  const auto data = tensor_file({.path = folder / "d.pt", .features = "x", .targets = "y"});
  EXPECT_EQ(data->size(), 3);
  EXPECT_TRUE(data->sample(2)["features"].equal(torch::tensor({4, 5})));
  EXPECT_EQ(data->sample(2)["targets"].item<int>(), 2);
  EXPECT_FALSE(tensor_file({.path = folder / "d.pt", .features = "x", .targets = {}})
                   ->sample(0)
                   .contains("targets"));
}

TEST(TensorFile, KeysNameAnyNumberOfTensors) {
  const TemporaryDirectory folder;
  checkpoint::save(folder / "d.pt", StateDict{{"img", torch::arange(6).reshape({3, 2})},
                                              {"wind", torch::arange(3)},
                                              {"label", torch::arange(3) + 10}});
  const auto data = tensor_file(
      {.path = folder / "d.pt", .keys = {{"image", "img"}, {"weather", "wind"}, {"y", "label"}}});
  EXPECT_EQ(data->size(), 3);
  const Batch sample = data->sample(1);
  EXPECT_TRUE(sample["image"].equal(torch::tensor({2, 3})));
  EXPECT_EQ(sample["weather"].item<int>(), 1);
  EXPECT_EQ(sample["y"].item<int>(), 11);
  EXPECT_FALSE(sample.contains("features"));
}

TEST(TensorFile, AListHasSamplesOfDifferentLengths) {
  const TemporaryDirectory folder;
  checkpoint::save(folder / "d.pt",
                   StateDict{{"tokens", StateList{torch::arange(2), torch::arange(5)}},
                             {"kind", torch::tensor({7, 8})},
                             {"short", StateList{torch::arange(2)}},
                             {"words", StateList{"a", "b"}}});
  const auto with = [&](std::map<std::string, std::string> keys) {
    return tensor_file({.path = folder / "d.pt", .keys = std::move(keys)});
  };
  const auto data = with({{"tokens", "tokens"}, {"kind", "kind"}});
  EXPECT_EQ(data->size(), 2);
  EXPECT_EQ(data->sample(0)["tokens"].numel(), 2);
  EXPECT_EQ(data->sample(1)["tokens"].numel(), 5);
  EXPECT_EQ(data->sample(1)["kind"].item<int>(), 8);
  const auto message = [&](std::map<std::string, std::string> keys) -> std::string {
    try {
      with(std::move(keys));
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({{"a", "tokens"}, {"b", "short"}}),
              HasSubstr("'short' has 1 samples, but 'tokens' has 2"));
  EXPECT_THAT(message({{"a", "words"}}), HasSubstr("'words': expected a tensor for each sample"));
  EXPECT_THAT(message({{"a", "token"}}), HasSubstr("tokens")) << "the nearest key";
}

TEST(TensorFile, OptionsThatContradictEachOtherAreRefused) {
  const auto message = [](const TensorFileOptions& options) -> std::string {
    try {
      tensor_file(options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({.path = "d.pt", .targets = "y", .keys = {{"a", "a"}}}),
              HasSubstr("keys: expected keys, or features and targets, got both"));
  EXPECT_THAT(message({.path = "d.pt", .keys = {{"a", "a"}}, .transform = ToTensor()}),
              HasSubstr("transform: it is for the key 'features'"));
}

TEST(TensorFile, AValueThatIsNotFiniteIsNamed) {
  const TemporaryDirectory folder;
  torch::Tensor x = torch::zeros({3, 2});
  x[1][1] = NAN;
  x[2][0] = HUGE_VAL;
  checkpoint::save(folder / "d.pt", StateDict{{"features", x},
                                              {"targets", torch::arange(3)},
                                              {"list", StateList{torch::zeros({2}), x[1], x[2]}}});
  const auto message = [&](const TensorFileOptions& options) -> std::string {
    try {
      tensor_file(options);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  const auto path = folder / "d.pt";
  EXPECT_THAT(message({.path = path}),
              AllOf(HasSubstr("d.pt: 'features': the value at [1, 1] is nan, and 2 of 6 values are "
                              "not finite"),
                    HasSubstr("allow_non_finite")));
  EXPECT_THAT(message({.path = path, .keys = {{"list", "list"}}}),
              HasSubstr("'list': the value at [1] of sample 1 is nan, and 2 of 6 values"));
  EXPECT_EQ(message({.path = path, .keys = {{"targets", "targets"}}}), "")
      << "what is not used is not checked";
  EXPECT_EQ(message({.path = path, .allow_non_finite = true}), "");
}

TEST(TensorFile, DamagedFilesAreErrorsOrSamples) {
  const TemporaryDirectory folder;
  const torch::Tensor x = torch::arange(60, torch::kFloat32).reshape({20, 3});
  checkpoint::save(folder / "good.pt", StateDict{{"features", x},
                                                 {"targets", x.select(1, 0).gt(30)},
                                                 {"list", StateList{x[0], x[1].clone()}}});
  const std::string good = read_file(folder / "good.pt");
  const auto read = [](const std::filesystem::path& path) {
    tensor_file({.path = path, .allow_non_finite = true});
    tensor_file({.path = path, .keys = {{"list", "list"}}, .allow_non_finite = true});
  };
  EXPECT_GT(refused_if_damaged<DataError>(good, folder / "d.pt", read), 10);
}

TEST(TensorFile, OfPythonsTorchSave) {
  if (std::system("/usr/bin/python3 -c 'import torch' 2>/dev/null") != 0)
    GTEST_SKIP() << "Python cannot import torch; install python3-torch";
  const TemporaryDirectory folder;
  const std::string script = fmt::format(
      "/usr/bin/python3 -c \"import torch; torch.save({{'features': torch.arange(6.).reshape(3, "
      "2), "
      "'targets': torch.arange(3)}}, '{}')\"",
      (folder / "p.pt").string());
  ASSERT_EQ(std::system(script.c_str()), 0);
  const auto data = tensor_file({.path = folder / "p.pt"});
  EXPECT_TRUE(data->sample(1)["features"].equal(torch::tensor({2.0f, 3.0f})));
}

TEST(TensorFile, ErrorsNameTheFileAndTheKey) {
  const TemporaryDirectory folder;
  checkpoint::save(folder / "d.pt", StateDict{{"x", torch::ones({3})}});
  try {
    tensor_file({.path = folder / "d.pt"});
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("d.pt"));
    EXPECT_THAT(error.what(), HasSubstr("features"));
  }
  try {
    tensor_file({.path = folder / "none.pt"});
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(error.what(), "path: " + (folder / "none.pt").string() +
                                ": cannot open: No such file or directory");
  }
}

}  // namespace
}  // namespace lockstep::data
