#include "lockstep/recipe/tensor_file.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"

namespace lockstep::recipe {
namespace {

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
}  // namespace lockstep::recipe
