#include "lockstep/comm/tree.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <type_traits>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

// How many elements are added up at a time. They stay in the first-level cache.
constexpr std::int64_t kBlock = 1024;

// What an operation does to two numbers. Integers wrap around; a NaN is never lost.
template <ReduceOp kOp, typename T>
T combined(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return kOp == ReduceOp::kSum || kOp == ReduceOp::kMax ? a || b : a && b;
  } else if constexpr (kOp == ReduceOp::kMin) {
    return b < a || b != b ? b : a;
  } else if constexpr (kOp == ReduceOp::kMax) {
    return b > a || b != b ? b : a;
  } else if constexpr (std::is_integral_v<T>) {
    // Unsigned, and not so short that it would be promoted to int.
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    return static_cast<T>(kOp == ReduceOp::kSum ? x + y : x * y);
  } else {
    return static_cast<T>(kOp == ReduceOp::kSum ? a + b : a * b);
  }
}

// `out` may be the same array as `a` or `b`. No element depends on another one, but the compiler
// cannot see that.
template <ReduceOp kOp, typename T>
void combine_by(const T* a, const T* b, T* out, std::int64_t count) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::int64_t i = 0; i < count; ++i) out[i] = combined<kOp>(a[i], b[i]);
}

template <typename T>
void combine(const T* a, const T* b, T* out, std::int64_t count, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      if constexpr (std::is_same_v<T, c10::BFloat16>) return add_rounded(a, b, out, count);
      return combine_by<ReduceOp::kSum>(a, b, out, count);
    case ReduceOp::kMin:
      return combine_by<ReduceOp::kMin>(a, b, out, count);
    case ReduceOp::kMax:
      return combine_by<ReduceOp::kMax>(a, b, out, count);
    case ReduceOp::kProduct:
      return combine_by<ReduceOp::kProduct>(a, b, out, count);
  }
}

// combine() for tensors. LibTorch's minimum() and maximum() choose between 0 and -0, and between
// two NaNs, in another way than combined().
void combine_tensors(const torch::Tensor& a, const torch::Tensor& b, torch::Tensor out,
                     ReduceOp op) {
  const bool logical = out.scalar_type() == torch::kBool;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      logical ? at::logical_or_out(out, a, b) : at::add_out(out, a, b);
      return;
    case ReduceOp::kProduct:
      logical ? at::logical_and_out(out, a, b) : at::mul_out(out, a, b);
      return;
    case ReduceOp::kMin:
      out.copy_(at::where(at::logical_or(b < a, b != b), b, a));
      return;
    case ReduceOp::kMax:
      out.copy_(at::where(at::logical_or(b > a, b != b), b, a));
      return;
  }
}

}  // namespace

Tree::Tree(std::vector<TreeNode> inputs, int leaves) {
  std::map<TreeNode, int> here;  // node -> term
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    here[inputs[i]] = static_cast<int>(terms_.size());
    terms_.push_back({.input = static_cast<int>(i)});
  }
  for (int level = 0; (1 << level) < leaves; ++level) {
    for (int index = 0; (index << level) < leaves; index += 2) {
      const auto left = here.find({level, index});
      if (left == here.end()) continue;
      const bool alone =
          ((index + 1) << level) >= leaves;  // without a right neighbour it goes up as it is
      const auto right = here.find({level, index + 1});
      if (!alone && right == here.end()) continue;
      int term = left->second;
      if (!alone) {
        terms_.push_back({.left = left->second, .right = right->second});
        term = static_cast<int>(terms_.size()) - 1;
        here.erase(right);
      }
      here.erase(left);
      here[{level + 1, index / 2}] = term;
    }
  }
  for (const auto& [node, term] : here) {
    outputs_.push_back(node);
    roots_.push_back(term);
  }
  whole_ = outputs_.size() == 1 && (1 << outputs_.front().level) >= leaves;
}

template <typename T, typename Copy, typename Combine>
void Tree::reduce_with(std::span<const void* const> inputs, std::span<void* const> outputs,
                       std::int64_t count, const Copy& copy, const Combine& combine) const {
  const auto input = [&](const Term& term) {
    return static_cast<const T*>(inputs[static_cast<std::size_t>(term.input)]);
  };
  // The common case: two arrays.
  if (roots_.size() == 1 && terms_.size() == 3 && terms_[2].input < 0) {
    const Term& sum = terms_[2];
    combine(input(terms_[static_cast<std::size_t>(sum.left)]),
            input(terms_[static_cast<std::size_t>(sum.right)]), static_cast<T*>(outputs[0]), count);
    return;
  }
  // The block of a sum is written to the scratch memory of its term. A term comes after the terms
  // that it is the sum of.
  const std::unique_ptr<T[]> scratch(new T[terms_.size() * kBlock]);
  std::vector<const T*> blocks(terms_.size());
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const std::int64_t length = std::min(kBlock, count - first);
    for (std::size_t i = 0; i < terms_.size(); ++i) {
      const Term& term = terms_[i];
      if (term.input >= 0) {
        blocks[i] = input(term) + first;
      } else {
        T* out = scratch.get() + i * kBlock;
        combine(blocks[static_cast<std::size_t>(term.left)],
                blocks[static_cast<std::size_t>(term.right)], out, length);
        blocks[i] = out;
      }
    }
    for (std::size_t k = 0; k < roots_.size(); ++k) {
      copy(blocks[static_cast<std::size_t>(roots_[k])], static_cast<T*>(outputs[k]) + first,
           length);
    }
  }
}

template <typename T>
void Tree::reduce_as(std::span<const void* const> inputs, std::span<void* const> outputs,
                     std::int64_t count, ReduceOp op) const {
  reduce_with<T>(
      inputs, outputs, count,
      [](const T* from, T* to, std::int64_t length) {
        if (to != from) std::copy(from, from + length, to);
      },
      [op](const T* a, const T* b, T* out, std::int64_t length) {
        combine(a, b, out, length, op);
      });
}

void Tree::reduce(std::span<const void* const> inputs, std::span<void* const> outputs,
                  std::int64_t count, torch::ScalarType type, ReduceOp op, Wire wire) const {
  if (is_rounded(wire, type)) {
    if (op != ReduceOp::kSum) {
      throw ConfigError("wire bf16: expected a sum, got another reduction of {}",
                        c10::toString(type));
    }
    // A number that was rounded is not changed by rounding it again. So the inputs may be leaves or
    // nodes.
    return reduce_with<float>(
        inputs, outputs, count,
        [](const float* from, float* to, std::int64_t length) { round_to_bf16(from, to, length); },
        [](const float* a, const float* b, float* out, std::int64_t length) {
          add_rounded(a, b, out, length);
        });
  }
  switch (type) {
    case torch::kFloat32:
      return reduce_as<float>(inputs, outputs, count, op);
    case torch::kFloat64:
      return reduce_as<double>(inputs, outputs, count, op);
    case torch::kFloat16:
      return reduce_as<c10::Half>(inputs, outputs, count, op);
    case torch::kBFloat16:
      return reduce_as<c10::BFloat16>(inputs, outputs, count, op);
    case torch::kInt8:
      return reduce_as<std::int8_t>(inputs, outputs, count, op);
    case torch::kUInt8:
      return reduce_as<std::uint8_t>(inputs, outputs, count, op);
    case torch::kInt16:
      return reduce_as<std::int16_t>(inputs, outputs, count, op);
    case torch::kInt32:
      return reduce_as<std::int32_t>(inputs, outputs, count, op);
    case torch::kInt64:
      return reduce_as<std::int64_t>(inputs, outputs, count, op);
    case torch::kBool:
      return reduce_as<bool>(inputs, outputs, count, op);
    default:
      check_reducible(type, op);
  }
}

std::vector<std::size_t> Tree::first_inputs() const {
  std::vector<std::size_t> first;
  for (int term : roots_) {
    while (terms_[static_cast<std::size_t>(term)].input < 0) {
      term = terms_[static_cast<std::size_t>(term)].left;
    }
    first.push_back(static_cast<std::size_t>(terms_[static_cast<std::size_t>(term)].input));
  }
  return first;
}

void Tree::reduce_tensors(const std::vector<torch::Tensor>& inputs,
                          const std::vector<torch::Tensor>& outputs, ReduceOp op) const {
  std::vector<torch::Tensor> values(terms_.size());
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    const Term& term = terms_[i];
    if (term.input >= 0) {
      values[i] = inputs[static_cast<std::size_t>(term.input)];
      continue;
    }
    // A sum takes the place of its left term, which no other sum needs, unless it is an output.
    const torch::Tensor& left = values[static_cast<std::size_t>(term.left)];
    const torch::Tensor& right = values[static_cast<std::size_t>(term.right)];
    const auto root = std::ranges::find(roots_, static_cast<int>(i));
    values[i] =
        root == roots_.end() ? left : outputs[static_cast<std::size_t>(root - roots_.begin())];
    combine_tensors(left, right, values[i], op);
  }
  for (std::size_t k = 0; k < roots_.size(); ++k) {
    const torch::Tensor& from = values[static_cast<std::size_t>(roots_[k])];
    if (!from.is_same(outputs[k])) torch::Tensor(outputs[k]).copy_(from);
  }
}

LeafRange leaves_of(const Share& share, int leaves) {
  return {.begin = leaves * share.rank / share.size, .end = leaves * (share.rank + 1) / share.size};
}

std::vector<TreeNode> leaf_nodes(const LeafRange& range) {
  std::vector<TreeNode> nodes;
  for (int leaf = range.begin; leaf < range.end; ++leaf)
    nodes.push_back({.level = 0, .index = leaf});
  return nodes;
}

std::vector<TreeNode> nodes_of(const Share& share, int leaves) {
  return Tree(leaf_nodes(leaves_of(share, leaves)), leaves).outputs();
}

RunningSums::RunningSums(const Options& options) {
  const LeafRange range = leaves_of(options.share, options.leaves);
  for (int leaf = range.begin; leaf < range.end; ++leaf) {
    Step step{.array = static_cast<int>(nodes_.size()), .additions = {}};
    nodes_.push_back({.level = 0, .index = leaf});
    arrays_ = std::max(arrays_, static_cast<int>(nodes_.size()));
    const bool last = leaf + 1 == range.end;
    while (!options.keep_all && !last && nodes_.size() > 1) {
      const TreeNode right = nodes_.back();
      const TreeNode left = nodes_[nodes_.size() - 2];
      if (left.level != right.level || right.index % 2 == 0 || left.index + 1 != right.index) break;
      const int from = static_cast<int>(nodes_.size()) - 1;
      step.additions.push_back({.to = from - 1, .from = from});
      nodes_.pop_back();
      nodes_.back() = {.level = left.level + 1, .index = left.index / 2};
    }
    steps_.push_back(std::move(step));
  }
}

void check_reducible(torch::ScalarType type, ReduceOp op) {
  constexpr std::array kFloats = {torch::kFloat32, torch::kFloat64, torch::kFloat16,
                                  torch::kBFloat16};
  constexpr std::array kIntegers = {torch::kInt8,  torch::kUInt8, torch::kInt16,
                                    torch::kInt32, torch::kInt64, torch::kBool};
  const bool is_float = std::ranges::find(kFloats, type) != kFloats.end();
  const bool is_integer = std::ranges::find(kIntegers, type) != kIntegers.end();
  if (!is_float && !is_integer) {
    throw ConfigError("a reduction: expected real numbers, integers or bool, got {}",
                      c10::toString(type));
  }
  if (is_integer && op == ReduceOp::kMean) {
    throw ConfigError("the mean of {}: expected floating point; take the sum, or convert first",
                      c10::toString(type));
  }
}

}  // namespace lockstep::comm
