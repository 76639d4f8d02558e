// How the ranks of a run talk to each other.
//
// Every call below is collective: all ranks must make it, in the same order, with tensors of the
// same shape and type where not said otherwise. A call throws WorkerError where a rank failed, and
// CommError past the time limit, with the operation, the ranks that came and those that did not;
// after that the communicator is of no more use. Sums have a fixed order (tree.h): the same bits on
// every rank, over any kind of communicator.
//
// Tensors may be on any device and of any layout in memory; those not contiguous on the CPU are
// copied there and back.
//
// Calls come from one thread at a time. A second thread may have reductions under way (the buckets
// of gradients that go off during backward()); it says so by set_background(), and every other
// collective then waits until that thread has nothing left to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/base/topology.h"
#include "lockstep/comm/tree.h"

namespace lockstep::comm {

// An array in memory.
struct Elements {
  std::int64_t count = 0;
  torch::ScalarType type = torch::kFloat32;

  std::size_t bytes() const { return static_cast<std::size_t>(count) * c10::elementSize(type); }
};

// "sum of Float", for messages.
std::string describe_reduction(torch::ScalarType type, ReduceOp op);

// This rank's terms of a sum over logical shards.
struct Parts {
  int leaves = 1;                      // terms altogether; this rank's are leaves_of() it
  std::vector<torch::Tensor> tensors;  // one a leaf, alike; used as scratch
  // What the tensors are where some leaves were added up before (RunningSums); empty: one leaf
  // each.
  std::vector<TreeNode> nodes = {};
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  int rank() const { return topology_.rank; }
  int size() const { return topology_.world_size; }
  const Topology& topology() const { return topology_; }
  bool is_primary() const { return rank() == 0; }

  // In place; the mean of integers is refused.
  void all_reduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum);

  // In place on `root`; elsewhere the tensor stays as it is.
  void reduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum, int root = 0);

  // In place, from `root` to all.
  void broadcast(const torch::Tensor& tensor, int root = 0);

  // Every rank's tensor, by rank. They may differ in shape, not in type.
  std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor);
  // The same on `root`; nothing elsewhere.
  std::vector<torch::Tensor> gather(const torch::Tensor& tensor, int root = 0);

  // Bytes of any length.
  std::vector<std::string> all_gather_bytes(std::string_view bytes);
  std::vector<std::string> gather_bytes(std::string_view bytes, int root = 0);
  std::string broadcast_bytes(std::string_view bytes, int root = 0);

  // out = the sum of all ranks' parts in the order of tree.h over `leaves`. `out` may be the first
  // of the parts. The only collective that does not wait for the background: it is what the
  // background does.
  void sum_parts(const Parts& parts, const torch::Tensor& out);

  void barrier();

  // Every rank's word, by rank. As cheap as a barrier.
  std::vector<std::uint64_t> vote(std::uint64_t word);

  // Memory that all ranks have mapped, zeroed; nothing where they are not on one host. Collective.
  virtual std::optional<torch::Tensor> shared_memory(std::size_t bytes) = 0;

  // Between writing memory of shared_memory() and reading what others wrote there.
  void synchronize();

  // Not collective: `wait` returns when another thread's sum_parts() are done; empty ends it. All
  // ranks must have started the same ones before their next collective. Where they have not, one
  // rank's sum meets another rank's collective, and both throw CommError, naming the two.
  void set_background(std::function<void()> wait) { background_ = std::move(wait); }

  // Not collective: tells the others that this rank fails, and why. They throw.
  virtual void abort(std::string_view reason) noexcept = 0;

  // Throws WorkerError where another rank is known to have failed. Not collective.
  virtual void check() {}

  // Not collective: where training is, for messages about this rank.
  virtual void set_progress(std::int64_t /*epoch*/, std::int64_t /*batch*/) {}

  // Not collective: whether this rank now does work of its own that the others have no part in, and
  // that may take long: loading, saving, a callback. The time limit of those that wait for it does
  // not count then; see HostGroup::kAloneLimits.
  virtual void set_alone(bool /*alone*/) {}

  // "shm", "gloo", … for messages and logs.
  virtual std::string name() const = 0;

 protected:
  explicit Communicator(const Topology& topology) : topology_(topology) {}

  // What a kind of communicator has to bring. Pointers are to contiguous memory of the CPU.
  friend class Hierarchical;  // which is made of two others
  virtual std::vector<std::uint64_t> do_vote(std::uint64_t word) = 0;
  virtual void do_barrier() { do_vote(0); }
  virtual void do_synchronize() { do_barrier(); }
  virtual void do_broadcast(std::byte* data, const Elements& elements, int root) = 0;
  // Nothing: everybody receives.
  virtual std::vector<std::string> do_gather(std::string_view mine, std::optional<int> root) = 0;
  // Who has which terms of a sum, and the order of adding them. It is the same for every sum over
  // so many leaves, and costs more to make than a small sum.
  struct ReductionPlan {
    ReductionPlan(std::vector<std::vector<TreeNode>> nodes_of_ranks, int leaves);

    std::vector<std::vector<TreeNode>> nodes;  // every rank's
    Tree tree;                                 // of all nodes, rank after rank
    std::size_t most = 0;                      // nodes of a rank
    int leaves = 1;
  };
  struct Reduction {
    const ReductionPlan& plan;
    std::span<const void* const> data;  // one array for each of this rank's nodes
    Elements elements;                  // of every array
    ReduceOp op = ReduceOp::kSum;
    bool gradients = false;  // by sum_parts(), which no other reduction may meet
  };
  // One array an output of the plan's tree. Where there is one, it may be an array of the data.
  virtual void do_reduce(const Reduction& reduction, std::span<std::byte* const> outputs) = 0;

 private:
  struct ReductionOrder {
    ReductionPlan plan;  // of all ranks' nodes
    Tree own;            // of this rank's terms
  };
  const ReductionOrder& order(int leaves, const std::vector<TreeNode>& terms = {});
  void wait_for_background() const {
    if (background_) background_();
  }

  Topology topology_;
  std::function<void()> background_;
  // By leaves and this rank's terms.
  std::map<std::pair<int, std::vector<TreeNode>>, ReductionOrder> orders_;
};

// Work of a rank's own for as long as it lives.
class AloneScope {
 public:
  explicit AloneScope(Communicator& communicator) : communicator_(communicator) {
    communicator_.set_alone(true);
  }
  ~AloneScope() { communicator_.set_alone(false); }
  AloneScope(const AloneScope&) = delete;
  AloneScope& operator=(const AloneScope&) = delete;

 private:
  Communicator& communicator_;
};

}  // namespace lockstep::comm
