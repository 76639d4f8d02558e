#include "lockstep/command/input_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::command {
namespace {

using Sizes = std::vector<std::int64_t>;

TEST(InputShape, NameSizesAndType) {
  const InputShape plain = read_input_shape("1,28,28");
  EXPECT_EQ(plain.name, "");
  EXPECT_EQ(plain.sizes, (Sizes{1, 28, 28}));
  EXPECT_EQ(plain.type, torch::kFloat32);
  const InputShape tokens = read_input_shape("tokens=16:long");
  EXPECT_EQ(tokens.name, "tokens");
  EXPECT_EQ(tokens.sizes, Sizes{16});
  EXPECT_EQ(tokens.type, torch::kInt64);
  EXPECT_EQ(read_input_shape("lengths=:long").sizes, Sizes{});
}

TEST(InputShape, AnExampleHasOneRowPerSample) {
  const torch::Tensor images = example_of(read_input_shape("3,4"), 2);
  EXPECT_EQ(images.sizes(), (torch::IntArrayRef{2, 3, 4}));
  EXPECT_TRUE(images.is_floating_point());
  // Ones are valid tokens and lengths.
  EXPECT_TRUE(
      torch::equal(example_of(read_input_shape("x=:long"), 3), torch::ones({3}, torch::kInt64)));
}

TEST(InputShape, MistakesAreNamed) {
  for (const auto& [argument, part] : {std::pair("3,x", "'x'"), std::pair("0", "'0'"),
                                       std::pair("4:flaot", "float"), std::pair("a=-2", "'-2'")}) {
    try {
      read_input_shape(argument);
      ADD_FAILURE() << argument;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(part));
      EXPECT_THAT(error.what(), ::testing::HasSubstr(argument));
    }
  }
}

}  // namespace
}  // namespace lockstep::command
