#include "lockstep/science/cubes.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/data/tensor_dataset.h"

namespace lockstep::science {
namespace {

TEST(Cubes, SplitAndCombineAreInverse) {
  for (const auto& [size, cube] :
       {std::pair(Sizes{6}, Sizes{2}), {{6, 4}, {3, 2}}, {{4, 6, 8}, {2, 3, 4}}}) {
    Sizes shape = {2};
    shape.insert(shape.end(), size.begin(), size.end());
    const torch::Tensor field = torch::rand(shape);
    const torch::Tensor cubes = split_cubes(field, cube);
    EXPECT_EQ(cubes.size(1), 2);
    EXPECT_TRUE(combine_cubes(cubes, size).equal(field));
  }
}

TEST(Cubes, GoRowByRow) {
  const torch::Tensor cubes = split_cubes(torch::arange(16).reshape({1, 4, 4}), {2, 2});
  EXPECT_TRUE(cubes[1][0].equal(torch::tensor({{2, 3}, {6, 7}})));
  EXPECT_TRUE(cubes[2][0].equal(torch::tensor({{8, 9}, {12, 13}})));
}

TEST(Cubes, WhatFillsNoneIsLeftOut) {
  EXPECT_EQ(split_cubes(torch::rand({1, 5, 7}), {2, 3}).size(0), 4);
  EXPECT_THROW(split_cubes(torch::rand({1, 5}), {6}), DataError);
  EXPECT_THROW(split_cubes(torch::rand({1, 5}), {2, 2}), DataError);
  EXPECT_THROW(combine_cubes(torch::rand({3, 1, 2, 2}), {4, 4}), DataError);
}

TEST(Cubes, ALoaderHasAShape) {
  const data::Loader loader = {
      std::make_shared<data::TensorDataset>(torch::rand({5, 3, 4, 4, 4}), torch::rand({5, 10})),
      {}};
  const FieldShape shape = shape_of(loader);
  EXPECT_EQ(shape.channels, 3);
  EXPECT_EQ(shape.size, (Sizes{4, 4, 4}));
  EXPECT_EQ(shape.outputs, 10);
  EXPECT_THROW(
      shape_of({std::make_shared<data::TensorDataset>(torch::rand({5}), torch::rand({5})), {}}),
      DataError);
}

}  // namespace
}  // namespace lockstep::science
