#include "lockstep/comm/tree.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/comm/numbers.h"

namespace lockstep::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What PyTorch computes for two tensors.
torch::Tensor combined(const torch::Tensor& a, const torch::Tensor& b, ReduceOp op) {
  const bool is_bool = a.scalar_type() == torch::kBool;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return is_bool ? a.logical_or(b) : a + b;
    case ReduceOp::kMin:
      return is_bool ? a.logical_and(b) : torch::minimum(a, b);
    case ReduceOp::kMax:
      return is_bool ? a.logical_or(b) : torch::maximum(a, b);
    case ReduceOp::kProduct:
      return is_bool ? a.logical_and(b) : a * b;
  }
  return a;
}

// A second implementation of the order of tree.h.
torch::Tensor expected(const std::vector<torch::Tensor>& leaves, ReduceOp op) {
  std::vector<torch::Tensor> level = leaves;
  while (level.size() > 1) {
    std::vector<torch::Tensor> next;
    for (std::size_t i = 0; i < level.size(); i += 2) {
      next.push_back(i + 1 < level.size() ? combined(level[i], level[i + 1], op) : level[i]);
    }
    level = next;
  }
  return level.front().clone();
}

// The same with PyTorch's bfloat16, whose sums are rounded.
torch::Tensor expected_in_bf16(const std::vector<torch::Tensor>& leaves) {
  std::vector<torch::Tensor> rounded;
  for (const auto& leaf : leaves) rounded.push_back(leaf.to(torch::kBFloat16));
  return expected(rounded, ReduceOp::kSum).to(torch::kFloat32);
}

struct Array {
  TreeNode node;
  torch::Tensor tensor;
};

std::vector<Array> reduced(const std::vector<Array>& arrays, int leaves, ReduceOp op,
                           Wire wire = Wire::kFp32) {
  std::vector<TreeNode> nodes;
  std::vector<const void*> inputs;
  for (const Array& array : arrays) {
    nodes.push_back(array.node);
    inputs.push_back(array.tensor.data_ptr());
  }
  const Tree tree(nodes, leaves);
  std::vector<Array> made;
  std::vector<void*> outputs;
  const torch::Tensor& like = arrays.front().tensor;
  for (const TreeNode& node : tree.outputs()) {
    outputs.push_back(made.emplace_back(Array{node, torch::empty_like(like)}).tensor.data_ptr());
  }
  tree.reduce(inputs, outputs, like.numel(), like.scalar_type(), op, wire);
  return made;
}

std::vector<Array> leaf_arrays(const std::vector<torch::Tensor>& tensors, const LeafRange& range) {
  std::vector<Array> arrays;
  for (int leaf = range.begin; leaf < range.end; ++leaf) {
    arrays.push_back({{.level = 0, .index = leaf}, tensors[static_cast<std::size_t>(leaf)]});
  }
  return arrays;
}

// First sums each range separately, then the nodes that are left.
torch::Tensor by_ranges(const std::vector<torch::Tensor>& tensors,
                        const std::vector<LeafRange>& ranges, ReduceOp op,
                        Wire wire = Wire::kFp32) {
  const int leaves = static_cast<int>(tensors.size());
  std::vector<Array> left;
  for (const LeafRange& range : ranges) {
    for (auto& array : reduced(leaf_arrays(tensors, range), leaves, op, wire)) {
      left.push_back(array);
    }
  }
  const auto whole = reduced(left, leaves, op, wire);
  EXPECT_EQ(whole.size(), 1U);
  return whole.front().tensor;
}

void expect_same_bits_for_every_split(Wire wire) {
  for (int leaves = 1; leaves <= 9; ++leaves) {
    const auto tensors = random_tensors(leaves, 1300, torch::kFloat32);
    const torch::Tensor right =
        wire == Wire::kFp32 ? expected(tensors, ReduceOp::kSum) : expected_in_bf16(tensors);
    // A bit of `cuts` says whether the next leaf begins a range.
    for (int cuts = 0; cuts < 1 << (leaves - 1); ++cuts) {
      std::vector<LeafRange> ranges{{.begin = 0, .end = 1}};
      for (int leaf = 1; leaf < leaves; ++leaf) {
        if ((cuts >> (leaf - 1) & 1) != 0) ranges.push_back({.begin = leaf, .end = leaf});
        ranges.back().end = leaf + 1;
      }
      ASSERT_TRUE(same_bits(by_ranges(tensors, ranges, ReduceOp::kSum, wire), right))
          << leaves << " leaves, cuts " << cuts;
    }
  }
}

TEST(Tree, EverySplitOfTheLeavesHasTheSameBits) {
  expect_same_bits_for_every_split(Wire::kFp32);
}

TEST(Tree, EverySplitOfRoundedLeavesHasTheSameBits) {
  expect_same_bits_for_every_split(Wire::kBf16);
}

TEST(Tree, RoundedSumsMayTakeThePlaceOfATermAndAreNearTheExactOnes) {
  for (const int leaves : {1, 2, 3, 6, 16}) {
    const auto tensors = random_tensors(leaves, 2500, torch::kFloat32);
    const torch::Tensor right = expected_in_bf16(tensors);
    torch::Tensor sum = torch::zeros({2500}, torch::kFloat64);
    torch::Tensor sizes = sum.clone();
    std::vector<const void*> inputs;
    for (const auto& tensor : tensors) {
      sum += tensor;
      sizes += tensor.abs();
      inputs.push_back(tensor.data_ptr());
    }
    void* const outputs[] = {tensors.front().data_ptr()};
    Tree(leaf_nodes({.begin = 0, .end = leaves}), leaves)
        .reduce(inputs, outputs, 2500, torch::kFloat32, ReduceOp::kSum, Wire::kBf16);
    ASSERT_TRUE(same_bits(tensors.front(), right));
    // docs/reductions.md: a term is rounded once as a leaf and once at each level, by 2^-8 of its
    // size at most. A hundredth more is for products of these small numbers.
    const double roundings = 1 + std::ceil(std::log2(leaves));
    EXPECT_TRUE(((right - sum).abs() <= sizes * (1.01 * roundings / 256)).all().item<bool>());
    EXPECT_FALSE(same_bits(right.to(torch::kFloat64), sum));
  }
}

TEST(Tree, OnlySumsOfFloat32AreRounded) {
  const auto doubles = random_tensors(3, 100, torch::kFloat64);
  EXPECT_TRUE(same_bits(by_ranges(doubles, {{.begin = 0, .end = 3}}, ReduceOp::kSum, Wire::kBf16),
                        expected(doubles, ReduceOp::kSum)));
  const auto floats = random_tensors(3, 100, torch::kFloat32);
  EXPECT_THROW(reduced(leaf_arrays(floats, {.begin = 0, .end = 3}), 3, ReduceOp::kMax, Wire::kBf16),
               ConfigError);
}

TEST(Tree, TheOrderMatters) {
  // Otherwise the tests of bits would show nothing.
  const auto tensors = random_tensors(8, 1300, torch::kFloat32);
  torch::Tensor in_turn = tensors[0].clone();
  for (int i = 1; i < 8; ++i) in_turn += tensors[static_cast<std::size_t>(i)];
  EXPECT_FALSE(same_bits(in_turn, expected(tensors, ReduceOp::kSum)));
}

TEST(Tree, EveryShareOfTheLeavesHasTheSameBits) {
  for (int leaves = 1; leaves <= 9; ++leaves) {
    const auto tensors = random_tensors(leaves, 100, torch::kFloat64);
    for (int size = 1; size <= leaves; ++size) {
      std::vector<LeafRange> ranges;
      for (int rank = 0; rank < size; ++rank) {
        ranges.push_back(leaves_of({.rank = rank, .size = size}, leaves));
        EXPECT_GE(ranges.back().count(), 1);
        EXPECT_EQ(ranges.back().begin, rank == 0 ? 0 : ranges[ranges.size() - 2].end);
        const auto left = reduced(leaf_arrays(tensors, ranges.back()), leaves, ReduceOp::kSum);
        const auto nodes = nodes_of({.rank = rank, .size = size}, leaves);
        ASSERT_EQ(left.size(), nodes.size());
        for (std::size_t i = 0; i < nodes.size(); ++i) EXPECT_EQ(left[i].node, nodes[i]);
      }
      EXPECT_EQ(ranges.back().end, leaves);
      ASSERT_TRUE(
          same_bits(by_ranges(tensors, ranges, ReduceOp::kSum), expected(tensors, ReduceOp::kSum)))
          << leaves << " leaves, " << size << " ranks";
    }
  }
}

class Types : public ::testing::TestWithParam<torch::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Tree, Types, ::testing::ValuesIn(kAllTypes));

TEST_P(Types, EveryOperationIsWhatPyTorchComputes) {
  for (const ReduceOp op : kAllOps) {
    for (const int leaves : {1, 2, 3, 5}) {
      for (const std::int64_t count : {0, 1, 7, 1024, 2500}) {
        const auto tensors = random_tensors(leaves, count, GetParam());
        const auto whole = reduced(leaf_arrays(tensors, {.begin = 0, .end = leaves}), leaves, op);
        ASSERT_EQ(whole.size(), 1U);
        ASSERT_TRUE(same_bits(whole.front().tensor, expected(tensors, op)))
            << leaves << " leaves of " << count << ", operation " << static_cast<int>(op);
      }
    }
  }
}

TEST_P(Types, ASumMayTakeThePlaceOfOneOfItsTerms) {
  for (const int leaves : {2, 3, 6}) {
    for (int place = 0; place < leaves; ++place) {
      const auto tensors = random_tensors(leaves, 2500, GetParam());
      const auto right = expected(tensors, ReduceOp::kSum);
      std::vector<const void*> inputs;
      for (const auto& tensor : tensors) inputs.push_back(tensor.data_ptr());
      void* const outputs[] = {tensors[static_cast<std::size_t>(place)].data_ptr()};
      Tree(leaf_nodes({.begin = 0, .end = leaves}), leaves)
          .reduce(inputs, outputs, 2500, GetParam(), ReduceOp::kSum);
      ASSERT_TRUE(same_bits(tensors[static_cast<std::size_t>(place)], right));
    }
  }
}

TEST(Tree, ANotANumberIsNeverLost) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16}) {
    for (const ReduceOp op : kAllOps) {
      for (int where = 0; where < 3; ++where) {
        std::vector<torch::Tensor> tensors;
        for (int i = 0; i < 3; ++i)
          tensors.push_back(torch::tensor({1.0F, i == where ? nan : 2.0F}).to(type));
        const auto whole = reduced(leaf_arrays(tensors, {.begin = 0, .end = 3}), 3, op);
        const torch::Tensor values = whole.front().tensor.to(torch::kFloat32);
        EXPECT_FALSE(std::isnan(values[0].item<float>()));
        EXPECT_TRUE(std::isnan(values[1].item<float>())) << "operation " << static_cast<int>(op);
      }
    }
  }
}

// The same bits, but there is more than one way to write that something is not a number.
bool same_numbers(const torch::Tensor& a, const torch::Tensor& b) {
  return same_bits(a.isnan(), b.isnan()) &&
         same_bits(a.masked_fill(a.isnan(), 0), b.masked_fill(b.isnan(), 0));
}

// Tensors of devices are reduced by LibTorch's functions, with the same bits.
TEST(Tree, TensorsAreReducedAsArraysAre) {
  for (const auto type : kAllTypes) {
    for (const ReduceOp op : kAllOps) {
      for (int leaves = 1; leaves <= 9; ++leaves) {
        const Tree tree(leaf_nodes({.begin = 0, .end = leaves}), leaves);
        auto inputs = random_tensors(leaves, 503, type);
        if (c10::isFloatingType(type)) {
          // Zeros of both signs, and what is not a number, in places of their own.
          for (int i = 0; i < leaves; ++i) {
            inputs[static_cast<std::size_t>(i)].narrow(0, 0, 4).zero_();
            if (i % 2 == 1) inputs[static_cast<std::size_t>(i)].narrow(0, 0, 4).neg_();
            inputs[static_cast<std::size_t>(i)][5 + i] = std::nan("");
          }
        }
        const torch::Tensor right = reduced_by_one(inputs, op);
        torch::Tensor out = torch::empty_like(right);
        std::vector<torch::Tensor> terms;
        for (const auto& input : inputs) terms.push_back(input.clone());
        tree.reduce_tensors(terms, {out}, op);
        ASSERT_TRUE(same_numbers(out, right))
            << c10::toString(type) << ", operation " << static_cast<int>(op) << ", " << leaves
            << " leaves";
        for (std::size_t i = 0; i < inputs.size(); ++i) terms[i] = inputs[i].clone();
        tree.reduce_tensors(terms, {terms.front()}, op);
        ASSERT_TRUE(same_numbers(terms.front(), right));
      }
    }
  }
}

TEST(Tree, KnowsTheFirstInputOfAnOutput) {
  // Leaves 1 to 5 of 8: node (0,1), (1,1), (1,2), in the order of the nodes.
  const Tree tree(leaf_nodes({.begin = 1, .end = 6}), 8);
  ASSERT_THAT(tree.outputs(), ElementsAre(TreeNode{0, 1}, TreeNode{1, 1}, TreeNode{1, 2}));
  EXPECT_THAT(tree.first_inputs(), ElementsAre(0, 1, 3));
}

TEST(Tree, NodesThatAreNoNeighboursStayApart) {
  const Tree tree({{.level = 0, .index = 1}, {.level = 0, .index = 2}, {.level = 0, .index = 3}},
                  4);
  EXPECT_FALSE(tree.is_whole());
  EXPECT_THAT(tree.outputs(),
              ElementsAre(TreeNode{.level = 0, .index = 1}, TreeNode{.level = 1, .index = 1}));
  EXPECT_TRUE(Tree(leaf_nodes({.begin = 0, .end = 7}), 7).is_whole());
}

TEST(Tree, WhatCannotBeReducedIsRefused) {
  for (const auto type :
       {torch::kInt8, torch::kUInt8, torch::kInt16, torch::kInt32, torch::kInt64, torch::kBool}) {
    EXPECT_THROW(check_reducible(type, ReduceOp::kMean), ConfigError);
    EXPECT_NO_THROW(check_reducible(type, ReduceOp::kSum));
  }
  try {
    check_reducible(torch::kInt64, ReduceOp::kMean);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the mean of Long: expected floating point"));
  }
  EXPECT_THROW(check_reducible(torch::kComplexFloat, ReduceOp::kSum), ConfigError);
  EXPECT_NO_THROW(check_reducible(torch::kBFloat16, ReduceOp::kMean));
}

// Leaves that are computed one after another need few arrays, and the sum has the tree's bits.
TEST(RunningSums, AddUpInTheOrderOfTheTree) {
  constexpr std::int64_t kCount = 100;
  for (int leaves = 1; leaves <= 17; ++leaves) {
    const auto right =
        reduced_by_one(random_tensors(leaves, kCount, torch::kFloat32), ReduceOp::kSum);
    for (int ranks = 1; ranks <= std::min(leaves, 4); ++ranks) {
      for (const bool keep_all : {false, true}) {
        std::vector<torch::Tensor> terms;
        std::vector<TreeNode> nodes;
        for (int rank = 0; rank < ranks; ++rank) {
          const Share share{.rank = rank, .size = ranks};
          const LeafRange range = leaves_of(share, leaves);
          const RunningSums sums({.share = share, .leaves = leaves, .keep_all = keep_all});
          std::vector<torch::Tensor> arrays;
          for (int i = 0; i < sums.arrays(); ++i) arrays.push_back(torch::zeros({kCount}));
          for (int local = 0; local < range.count(); ++local) {
            const torch::Tensor& array = arrays[static_cast<std::size_t>(sums.array_of(local))];
            ASSERT_EQ(array.abs().sum().item<float>(), 0.0F) << "it is not free";
            array.add_(random_tensor(static_cast<std::uint64_t>(range.begin + local), kCount,
                                     torch::kFloat32));
            for (const auto& [to, from] : sums.additions(local)) {
              arrays[static_cast<std::size_t>(to)].add_(arrays[static_cast<std::size_t>(from)]);
              arrays[static_cast<std::size_t>(from)].zero_();
            }
          }
          terms.insert(terms.end(), arrays.begin(),
                       arrays.begin() + static_cast<std::ptrdiff_t>(sums.nodes().size()));
          nodes.insert(nodes.end(), sums.nodes().begin(), sums.nodes().end());
        }
        const Tree tree(nodes, leaves);
        ASSERT_TRUE(tree.is_whole()) << leaves << " leaves on " << ranks;
        std::vector<const void*> inputs;
        for (const auto& term : terms) inputs.push_back(term.data_ptr());
        const torch::Tensor sum = torch::empty({kCount});
        void* const outputs[] = {sum.data_ptr()};
        tree.reduce(inputs, outputs, kCount, torch::kFloat32, ReduceOp::kSum);
        ASSERT_TRUE(same_bits(sum, right)) << leaves << " leaves on " << ranks;
      }
    }
  }
}

TEST(RunningSums, NeedFewArrays) {
  const auto arrays = [](int leaves, bool keep_all) {
    return RunningSums({.share = {.rank = 0, .size = 1}, .leaves = leaves, .keep_all = keep_all})
        .arrays();
  };
  EXPECT_EQ(arrays(1, false), 1);
  EXPECT_EQ(arrays(2, false), 2);
  EXPECT_EQ(arrays(8, false), 4);
  EXPECT_EQ(arrays(9, false), 4);
  EXPECT_EQ(arrays(64, false), 7);
  EXPECT_EQ(arrays(64, true), 64);
}

}  // namespace
}  // namespace lockstep::comm
