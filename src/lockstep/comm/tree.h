// Sums in a fixed order, so that their bits do not depend on which rank computes which part.
//
// The order is a binary tree over `leaves` terms (logical shards, or ranks):
//
//   level 2          +                  node (level, index) is the sum of the leaves from
//   level 1     +         +             index * 2^level on, 2^level of them or as many as there are
//   level 0   0   1     2   3
//
// Each rank adds those of its terms that are neighbours in the tree. A few nodes are left, which
// are then added to the nodes of other ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/wire.h"

namespace lockstep::comm {

enum class ReduceOp { kSum, kMean, kMin, kMax, kProduct };

struct TreeNode {
  int level = 0;
  int index = 0;

  friend auto operator<=>(const TreeNode&, const TreeNode&) = default;
};

// Adds up the given nodes to fewer and larger ones, as far as the order allows.
class Tree {
 public:
  // Each leaf must be in at most one of `inputs`.
  Tree(std::vector<TreeNode> inputs, int leaves);

  // The nodes that result. It is one node if the inputs contain all leaves.
  const std::vector<TreeNode>& outputs() const { return outputs_; }
  bool is_whole() const { return whole_; }
  // For each output, the index of the input with its first leaf.
  std::vector<std::size_t> first_inputs() const;

  // Computes outputs[k][i] for i in [0, count) from the inputs' arrays of `type`. An output may be
  // the array of an input that is a term of it. With Wire::kBf16 every input and every sum is
  // rounded, also an input that is an output; only sums can be rounded.
  void reduce(std::span<const void* const> inputs, std::span<void* const> outputs,
              std::int64_t count, torch::ScalarType type, ReduceOp op,
              Wire wire = Wire::kFp32) const;

  // The same, bit for bit, for tensors on any device, by LibTorch's functions; only the bits of a
  // NaN may differ. `inputs` are overwritten.
  void reduce_tensors(const std::vector<torch::Tensor>& inputs,
                      const std::vector<torch::Tensor>& outputs, ReduceOp op) const;

 private:
  // `copy(from, to, count)` and `combine(a, b, out, count)` work on arrays of T.
  template <typename T, typename Copy, typename Combine>
  void reduce_with(std::span<const void* const> inputs, std::span<void* const> outputs,
                   std::int64_t count, const Copy& copy, const Combine& combine) const;
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
  std::vector<int> roots_;  // terms, one per output
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
  int size = 1;  // number of ranks, at most the number of leaves
};

// A rank has consecutive leaves, and the first rank has the first leaf.
LeafRange leaves_of(const Share& share, int leaves);

std::vector<TreeNode> leaf_nodes(const LeafRange& range);

// The nodes that a rank has left when it has added up its leaves as far as the order allows.
std::vector<TreeNode> nodes_of(const Share& share, int leaves);

// How a rank adds up its leaves if they are computed one after another. It needs as few arrays as
// the order of the tree allows: log2 of the number of its leaves, plus one, if they begin at the
// first leaf, else at most twice as many. A complete leaf is added to its left neighbour in the
// tree, if the rank has that, and its array is free for the next leaf. The last leaf is not added
// to anything here: the sum over all ranks adds it.
class RunningSums {
 public:
  struct Options {
    Share share;
    int leaves = 1;
    bool keep_all = false;  // each leaf keeps its array, because later batches add to it
  };
  explicit RunningSums(const Options& options);

  // How many arrays are needed. All must be zero at first.
  int arrays() const { return arrays_; }

  // The array for this rank's leaf `local`, counted from 0.
  int array_of(int local) const { return steps_[static_cast<std::size_t>(local)].array; }

  // An addition that the caller does when the leaf is complete: to += from, from = 0.
  struct Addition {
    int to = 0;
    int from = 0;
  };
  const std::vector<Addition>& additions(int local) const {
    return steps_[static_cast<std::size_t>(local)].additions;
  }

  // The nodes that the first arrays hold at the end, one node each.
  const std::vector<TreeNode>& nodes() const { return nodes_; }

 private:
  struct Step {
    int array = 0;
    std::vector<Addition> additions;
  };
  std::vector<Step> steps_;  // one per leaf
  std::vector<TreeNode> nodes_;
  int arrays_ = 0;
};

// Throws ConfigError for a type that cannot be reduced, and for the mean of integers.
void check_reducible(torch::ScalarType type, ReduceOp op);

}  // namespace lockstep::comm
