#include "lockstep/comm/communicator.h"

#include <algorithm>
#include <cstring>

#include <torch/utils.h>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

bool is_plain(const torch::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous();
}

// A tensor's elements as contiguous memory of the CPU. finish() copies changes back to the tensor.
class Staged {
 public:
  explicit Staged(const torch::Tensor& tensor)
      : tensor_(tensor.detach()),
        plain_(is_plain(tensor_) ? tensor_ : tensor_.cpu().contiguous()) {}

  std::byte* data() const { return static_cast<std::byte*>(plain_.data_ptr()); }
  Elements elements() const { return {plain_.numel(), plain_.scalar_type()}; }
  torch::Tensor& plain() { return plain_; }
  void finish() {
    if (!plain_.is_same(tensor_)) tensor_.copy_(plain_);
  }

 private:
  torch::Tensor tensor_;
  torch::Tensor plain_;
};

std::string_view bytes_of(const torch::Tensor& plain) {
  return {static_cast<const char*>(plain.data_ptr()), plain.nbytes()};
}

// Type and shape are written before the elements, so that each rank may have its own shape.
std::string packed(const torch::Tensor& plain) {
  std::string text(2 * sizeof(std::int64_t) + static_cast<std::size_t>(plain.dim()) * 8, '\0');
  std::vector<std::int64_t> head{static_cast<std::int64_t>(plain.scalar_type()), plain.dim()};
  head.insert(head.end(), plain.sizes().begin(), plain.sizes().end());
  std::memcpy(text.data(), head.data(), text.size());
  return text.append(bytes_of(plain));
}

torch::Tensor unpacked(const std::string& bytes, const torch::Tensor& like, int rank) {
  std::int64_t head[2] = {};
  std::memcpy(head, bytes.data(), sizeof head);
  const auto type = static_cast<torch::ScalarType>(head[0]);
  if (type != like.scalar_type()) {
    throw CommError("gather: rank {} sent {}, expected {}", rank, c10::toString(type),
                    c10::toString(like.scalar_type()));
  }
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(head[1]));
  // A scalar has no sizes and an empty tensor no data: memcpy() must not see their null pointers.
  if (!sizes.empty()) std::memcpy(sizes.data(), bytes.data() + sizeof head, sizes.size() * 8);
  torch::Tensor tensor = torch::empty(sizes, torch::dtype(type));
  if (tensor.numel() > 0) {
    std::memcpy(tensor.data_ptr(), bytes.data() + sizeof head + sizes.size() * 8, tensor.nbytes());
  }
  return tensor.to(like.device());
}

void check_root(const Communicator& comm, int root) {
  if (root >= 0 && root < comm.size()) return;
  throw CommError("root: expected a rank from 0 to {}, got {}", comm.size() - 1, root);
}

void check_dense(const torch::Tensor& tensor) {
  if (tensor.defined() && tensor.layout() == torch::kStrided) return;
  throw CommError("a collective: expected a dense tensor, got {}",
                  tensor.defined() ? "a sparse one" : "an undefined one");
}

std::vector<TreeNode> joined(const std::vector<std::vector<TreeNode>>& nodes) {
  std::vector<TreeNode> all;
  for (const auto& of_rank : nodes) all.insert(all.end(), of_rank.begin(), of_rank.end());
  return all;
}

}  // namespace

std::string describe_reduction(torch::ScalarType type, ReduceOp op) {
  const auto name = [op] {
    switch (op) {
      case ReduceOp::kSum:
        return "sum";
      case ReduceOp::kMean:
        return "mean";
      case ReduceOp::kMin:
        return "minimum";
      case ReduceOp::kMax:
        return "maximum";
      case ReduceOp::kProduct:
        return "product";
    }
    return "reduction";
  };
  return fmt::format("{} of {}", name(), c10::toString(type));
}

Communicator::ReductionPlan::ReductionPlan(std::vector<std::vector<TreeNode>> nodes_of_ranks,
                                           int leaves)
    : nodes(std::move(nodes_of_ranks)), tree(joined(nodes), leaves), leaves(leaves) {
  for (const auto& of_rank : nodes) most = std::max(most, of_rank.size());
}

const Communicator::ReductionOrder& Communicator::order(int leaves,
                                                        const std::vector<TreeNode>& terms) {
  const std::pair key(leaves, terms);
  if (const auto known = orders_.find(key); known != orders_.end()) return known->second;
  std::vector<std::vector<TreeNode>> all;
  for (int rank = 0; rank < size(); ++rank) {
    all.push_back(nodes_of({.rank = rank, .size = size()}, leaves));
  }
  const LeafRange own = leaves_of({.rank = rank(), .size = size()}, leaves);
  Tree tree(terms.empty() ? leaf_nodes(own) : terms, leaves);
  return orders_
      .emplace(key, ReductionOrder{ReductionPlan(std::move(all), leaves), std::move(tree)})
      .first->second;
}

void Communicator::all_reduce(const torch::Tensor& tensor, ReduceOp op) {
  check_dense(tensor);
  check_reducible(tensor.scalar_type(), op);
  if (size() == 1) return;
  wait_for_background();
  torch::NoGradGuard no_grad;
  if (DeviceCollectives* const device = on_device(tensor.device())) {
    device->reduce({.plan = order(size()).plan,
                    .terms = {tensor.detach()},
                    .out = tensor.detach(),
                    .op = op,
                    .type = tensor.scalar_type()});
    return;
  }
  Staged staged(tensor);
  const void* const data[] = {staged.data()};
  std::byte* const outputs[] = {staged.data()};
  do_reduce({.plan = order(size()).plan, .data = data, .elements = staged.elements(), .op = op},
            outputs);
  if (op == ReduceOp::kMean) staged.plain().div_(size());
  staged.finish();
}

void Communicator::reduce(const torch::Tensor& tensor, ReduceOp op, int root) {
  check_root(*this, root);
  check_dense(tensor);
  all_reduce(rank() == root ? tensor : tensor.detach().clone(), op);
}

void Communicator::broadcast(const torch::Tensor& tensor, int root) {
  check_root(*this, root);
  check_dense(tensor);
  if (size() == 1) return;
  wait_for_background();
  torch::NoGradGuard no_grad;
  if (DeviceCollectives* const device = on_device(tensor.device())) {
    device->broadcast(tensor.detach(), root);
    return;
  }
  Staged staged(tensor);
  do_broadcast(staged.data(), staged.elements(), root);
  if (rank() != root) staged.finish();
}

std::vector<torch::Tensor> Communicator::all_gather(const torch::Tensor& tensor) {
  check_dense(tensor);
  wait_for_background();
  if (DeviceCollectives* const device = on_device(tensor.device())) {
    return device->gather(tensor.detach(), std::nullopt);
  }
  const auto all = do_gather(packed(Staged(tensor).plain()), std::nullopt);
  std::vector<torch::Tensor> tensors;
  for (int i = 0; i < size(); ++i)
    tensors.push_back(unpacked(all[static_cast<std::size_t>(i)], tensor, i));
  return tensors;
}

std::vector<torch::Tensor> Communicator::gather(const torch::Tensor& tensor, int root) {
  check_root(*this, root);
  check_dense(tensor);
  wait_for_background();
  if (DeviceCollectives* const device = on_device(tensor.device())) {
    return device->gather(tensor.detach(), root);
  }
  const auto all = do_gather(packed(Staged(tensor).plain()), root);
  std::vector<torch::Tensor> tensors;
  if (rank() != root) return tensors;
  for (int i = 0; i < size(); ++i)
    tensors.push_back(unpacked(all[static_cast<std::size_t>(i)], tensor, i));
  return tensors;
}

std::vector<std::string> Communicator::all_gather_bytes(std::string_view bytes) {
  wait_for_background();
  return do_gather(bytes, std::nullopt);
}

std::vector<std::string> Communicator::gather_bytes(std::string_view bytes, int root) {
  check_root(*this, root);
  wait_for_background();
  auto all = do_gather(bytes, root);
  if (rank() != root) all.clear();
  return all;
}

std::string Communicator::broadcast_bytes(std::string_view bytes, int root) {
  check_root(*this, root);
  if (size() == 1) return std::string(bytes);
  wait_for_background();
  std::uint64_t length = bytes.size();
  do_broadcast(reinterpret_cast<std::byte*>(&length), {1, torch::kInt64}, root);
  std::string text(length, '\0');
  if (rank() == root) text = bytes;
  do_broadcast(reinterpret_cast<std::byte*>(text.data()),
               {static_cast<std::int64_t>(text.size()), torch::kUInt8}, root);
  return text;
}

void Communicator::barrier() {
  wait_for_background();
  do_barrier();
}

std::vector<std::uint64_t> Communicator::vote(std::uint64_t word) {
  wait_for_background();
  return do_vote(word);
}

void Communicator::synchronize() {
  wait_for_background();
  do_synchronize();
}

void Communicator::sum_parts(const Parts& parts, const torch::Tensor& out) {
  torch::NoGradGuard no_grad;
  if (parts.leaves < 1)
    throw CommError("sum_parts: leaves: expected 1 or more, got {}", parts.leaves);
  const LeafRange range = leaves_of({.rank = rank(), .size = size()}, parts.leaves);
  const std::vector<TreeNode> nodes = parts.nodes.empty() ? leaf_nodes(range) : parts.nodes;
  if (nodes.size() != parts.tensors.size()) {
    throw CommError("sum_parts: expected {} tensors on rank {}, got {}", nodes.size(), rank(),
                    parts.tensors.size());
  }
  check_dense(out);
  const Elements elements{out.numel(), out.scalar_type()};
  check_reducible(elements.type, ReduceOp::kSum);
  const bool rounds = is_rounded(parts.wire, elements.type);
  if (rounds && parts.exact > 0) {
    const auto cut = [&](std::int64_t begin, std::int64_t end, Wire wire) {
      Parts some{.leaves = parts.leaves,
                 .tensors = {},
                 .nodes = parts.nodes,
                 .wire = wire,
                 .after = parts.after};
      for (const auto& tensor : parts.tensors) some.tensors.push_back(tensor.slice(0, begin, end));
      sum_parts(some, out.slice(0, begin, end));
    };
    cut(0, parts.exact, Wire::kFp32);
    cut(parts.exact, elements.count, parts.wire);
    return;
  }
  for (const auto& tensor : parts.tensors) {
    check_dense(tensor);
    if (tensor.numel() != elements.count || tensor.scalar_type() != elements.type) {
      throw CommError("sum_parts: expected {} numbers of {} in every tensor, got {} of {}",
                      elements.count, c10::toString(elements.type), tensor.numel(),
                      c10::toString(tensor.scalar_type()));
    }
  }
  if (sum_on_device(parts, out)) return;
  std::vector<Staged> staged;
  std::vector<const void*> inputs;
  for (const auto& tensor : parts.tensors) inputs.push_back(staged.emplace_back(tensor).data());
  // Terms that are neighbours in the tree are added up before anything is sent. A sum takes the
  // place of its first term.
  const auto& [plan, own] = order(parts.leaves, parts.nodes);
  const auto first_leaf = [](const TreeNode& node) { return node.index << node.level; };
  std::vector<const void*> terms;
  std::vector<void*> sums;
  for (const TreeNode& node : own.outputs()) {
    const auto first = std::ranges::find(nodes, first_leaf(node), first_leaf);
    terms.push_back(
        sums.emplace_back(staged[static_cast<std::size_t>(first - nodes.begin())].data()));
  }
  own.reduce(inputs, sums, elements.count, elements.type, ReduceOp::kSum, parts.wire);

  Staged target(out);
  if (size() == 1) {
    if (target.data() != sums.front()) std::memcpy(target.data(), sums.front(), elements.bytes());
  } else {
    const Reduction reduction{.plan = plan, .data = terms, .elements = elements, .gradients = true};
    std::byte* const outputs[] = {target.data()};
    rounds ? reduce_rounded(reduction, target.data()) : do_reduce(reduction, outputs);
  }
  target.finish();
}

// False: the tensors are staged.
bool Communicator::sum_on_device(const Parts& parts, const torch::Tensor& out) {
  const torch::Device place = out.device();
  const bool alike = std::ranges::all_of(
      parts.tensors, [&](const torch::Tensor& tensor) { return tensor.device() == place; });
  if (!alike) {
    throw CommError("sum_parts: expected all tensors on {}, as the result, got another device",
                    place.str());
  }
  const auto& [plan, own] = order(parts.leaves, parts.nodes);
  // Alone there is nothing to send, and the current stream is the one that computes the tensors.
  const bool rounds = is_rounded(parts.wire, out.scalar_type());
  if (size() == 1 && !place.is_cpu()) {
    std::vector<torch::Tensor> terms = parts.tensors;
    for (auto& term : terms) term = rounds ? term.to(torch::kBFloat16) : term;
    torch::Tensor sum = rounds ? torch::empty_like(out, torch::kBFloat16) : out;
    own.reduce_tensors(terms, {sum}, ReduceOp::kSum);
    if (rounds) torch::Tensor(out).copy_(sum);
    return true;
  }
  DeviceCollectives* const device = size() == 1 ? nullptr : on_device(place);
  if (device == nullptr) return false;
  std::vector<torch::Tensor> terms;
  for (const auto& tensor : parts.tensors) terms.push_back(tensor.detach());
  device->reduce({.plan = plan,
                  .own = &own,
                  .terms = std::move(terms),
                  .out = out.detach(),
                  .after = parts.after,
                  .gradients = true,
                  .type = rounds ? torch::kBFloat16 : out.scalar_type()});
  return true;
}

// The nodes are rounded already, so converting them to bfloat16 loses nothing. A sum of bfloat16 is
// rounded at every node, as the sums of float32 that a rank computes by itself.
void Communicator::reduce_rounded(const Reduction& reduction, std::byte* out) {
  const Elements narrow{.count = reduction.elements.count, .type = torch::kBFloat16};
  std::vector<torch::Tensor> nodes;
  std::vector<const void*> data;
  for (const void* const node : reduction.data) {
    nodes.push_back(torch::empty({narrow.count}, narrow.type));
    auto* const to = nodes.back().data_ptr<c10::BFloat16>();
    narrow_to_bf16(static_cast<const float*>(node), to, narrow.count);
    data.push_back(to);
  }
  const torch::Tensor sum = torch::empty({narrow.count}, narrow.type);
  std::byte* const outputs[] = {static_cast<std::byte*>(sum.data_ptr())};
  do_reduce({.plan = reduction.plan,
             .data = data,
             .elements = narrow,
             .op = reduction.op,
             .gradients = reduction.gradients},
            outputs);
  widen_from_bf16(sum.data_ptr<c10::BFloat16>(), reinterpret_cast<float*>(out), narrow.count);
}

}  // namespace lockstep::comm
