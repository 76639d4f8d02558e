#include "lockstep/checkpoint/average.h"

#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

StateDict average_weights(std::span<const fs::path> paths) {
  WeightAverage average;
  for (const fs::path& path : paths) average.add(load_weights(path), path);
  return average.mean();
}

class Average : public ::testing::Test {
 protected:
  fs::path save(const std::string& name, const StateDict& weights) {
    checkpoint::save(folder_ / name, StateDict{{"model_state_dict", weights}});
    return folder_ / name;
  }
  TemporaryDirectory folder_;
};

TEST_F(Average, IsTheMeanOfFloatsAndTheLastOfCounts) {
  const std::vector<fs::path> paths = {
      save("a", {{"w", torch::tensor({1.0f, 2.0f})}, {"n", torch::tensor(3)}}),
      save("b", {{"w", torch::tensor({2.0f, 4.0f})}, {"n", torch::tensor(5)}}),
      save("c", {{"w", torch::tensor({6.0f, 3.0f})}, {"n", torch::tensor(9)}})};
  const StateDict mean = average_weights(paths);
  EXPECT_TRUE(mean.get<torch::Tensor>("w").equal(torch::tensor({3.0f, 3.0f})));
  EXPECT_EQ(mean.get<torch::Tensor>("n").item<int>(), 9);
}

TEST_F(Average, OfOneIsItself) {
  const std::vector<fs::path> paths = {save("a", {{"w", torch::tensor({0.1f})}})};
  EXPECT_TRUE(average_weights(paths).get<torch::Tensor>("w").equal(torch::tensor({0.1f})));
}

TEST_F(Average, OtherModelsAreRefused) {
  const auto first = save("a", {{"w", torch::ones({2})}});
  for (const auto& other :
       {save("b", {{"v", torch::ones({2})}}), save("c", {{"w", torch::ones({3})}}),
        save("d", {{"w", torch::ones({2})}, {"x", torch::ones({2})}})}) {
    const std::vector<fs::path> paths = {first, other};
    try {
      average_weights(paths);
      FAIL() << other;
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr(other.string()));
    }
  }
  EXPECT_THROW(average_weights({}), ConfigError);
}

}  // namespace
}  // namespace lockstep::checkpoint
