// Sums in a fixed order, so that their bits do not depend on who computes which part of them.
//
// The order is a binary tree over `leaves` terms (logical shards, or ranks):
//
//   level 2          +                  node (level, index) is the sum of the leaves from
//   level 1     +         +             index * 2^level on, 2^level of them or as many as there are
//   level 0   0   1     2   3
//
// Whoever has some of the terms adds those that are neighbours in the tree; what is left are a few
// nodes, which others add to theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <torch/types.h>

namespace lockstep::comm {

enum class ReduceOp { kSum, kMean, kMin, kMax, kProduct };

struct TreeNode {
  int level = 0;
  int index = 0;

  friend auto operator<=>(const TreeNode&, const TreeNode&) = default;
};

// How the nodes that are there make fewer and larger ones, as far as they can.
class Tree {
 public:
  // Each leaf is in one of `inputs` at most.
  Tree(std::vector<TreeNode> inputs, int leaves);

  // What comes out; one where all leaves went in.
  const std::vector<TreeNode>& outputs() const { return outputs_; }
  bool is_whole() const { return whole_; }

  // outputs[k][i] for i in [0, count) from the inputs' arrays of `type`. An output may be the array
  // of an input of its own.
  void reduce(std::span<const void* const> inputs, std::span<void* const> outputs,
              std::int64_t count, torch::ScalarType type, ReduceOp op) const;

 private:
  template <typename T>
  void reduce_as(std::span<const void* const> inputs, std::span<void* const> outputs,
                 std::int64_t count, ReduceOp op) const;

  // An input, or the sum of two others.
  struct Term {
    int input = -1;
    int left = -1;
    int right = -1;
  };

  std::vector<Term> terms_;
  std::vector<int> roots_;  // terms, one an output
  std::vector<TreeNode> outputs_;
  bool whole_ = false;
};

// Which leaves a rank has: [begin, end).
struct LeafRange {
  int begin = 0;
  int end = 0;

  int count() const { return end - begin; }
};

struct Share {
  int rank = 0;
  int size = 1;  // ranks; leaves are at least as many
};

// Neighbours go together, and the first rank has the first leaf.
LeafRange leaves_of(const Share& share, int leaves);

std::vector<TreeNode> leaf_nodes(const LeafRange& range);

// What is left of a rank's leaves once it has added up what it can.
std::vector<TreeNode> nodes_of(const Share& share, int leaves);

// How a rank adds up its leaves where they come one after the other, in as few arrays as the order
// of the tree allows: log2 of its leaves and one where they begin at the first leaf, else at most
// twice as many. A leaf is added to a neighbour that waits
// for it, and its array is free for the next one. The last leaf is not added to anything: that is
// left to the sum over all ranks.
class RunningSums {
 public:
  struct Options {
    Share share;
    int leaves = 1;
    bool keep_all = false;  // every leaf keeps an array of its own, because there is more to come
  };
  explicit RunningSums(const Options& options);

  // Arrays that are needed, from 0 on. All are zero at first.
  int arrays() const { return arrays_; }

  // Where the rank's leaf, counted from 0, is put.
  int array_of(int local) const { return steps_[static_cast<std::size_t>(local)].array; }

  // What is to be done when the leaf is complete: to += from, from = 0.
  struct Addition {
    int to = 0;
    int from = 0;
  };
  const std::vector<Addition>& additions(int local) const {
    return steps_[static_cast<std::size_t>(local)].additions;
  }

  // What the first arrays hold in the end, one node each.
  const std::vector<TreeNode>& nodes() const { return nodes_; }

 private:
  struct Step {
    int array = 0;
    std::vector<Addition> additions;
  };
  std::vector<Step> steps_;  // one a leaf
  std::vector<TreeNode> nodes_;
  int arrays_ = 0;
};

// Throws ConfigError for a type that cannot be reduced, and for the mean of integers.
void check_reducible(torch::ScalarType type, ReduceOp op);

}  // namespace lockstep::comm
