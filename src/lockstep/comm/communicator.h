// How the ranks of a run talk to each other.
//
// Every call below is collective, unless it says otherwise: all ranks must make it, in the same
// order, with tensors of the same shape and type. A call throws WorkerError if a rank failed. It
// throws CommError after the time limit, and names the operation, the ranks that called it and
// those that did not. After an error the communicator cannot be used any more. Sums have a fixed
// order (tree.h): they have the same bits on every rank, over any kind of communicator.
//
// Tensors may be on any device and of any layout in memory. A tensor that is not contiguous on the
// CPU is copied there and back, unless the communicator has a data plane for its device
// (two_planes.h).
//
// Only one thread at a time may call. A second thread may run reductions in the background (the
// buckets of gradients that are reduced during backward()). It is registered by set_background(),
// and every other collective then waits until that thread has finished its reductions.
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
#include "lockstep/comm/device_plane.h"
#include "lockstep/comm/tree.h"
#include "lockstep/process/host_group.h"

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
  int leaves = 1;                      // terms of all ranks; leaves_of() says which are this rank's
  std::vector<torch::Tensor> tensors;  // one per leaf, of one size and type; overwritten
  // The node that each tensor holds, if some leaves were already added up (RunningSums). Empty:
  // each tensor is one leaf.
  std::vector<TreeNode> nodes = {};
  // With kBf16, numbers of float32 are rounded before each addition and after it, and sent in half
  // the bytes.
  Wire wire = Wire::kFp32;
  // How many elements at the front are never rounded, for example counts. They cost a reduction of
  // their own if the rest is rounded. The tensors then have one dimension.
  std::int64_t exact = 0;
  // When the tensors are complete, if another thread than the one that computes them makes the
  // call: what ready() returned there.
  std::shared_ptr<StreamPoint> after = {};
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  int rank() const { return topology_.rank; }
  int size() const { return topology_.world_size; }
  const Topology& topology() const { return topology_; }
  bool is_primary() const { return rank() == 0; }

  // In place. Throws ConfigError for the mean of integers.
  void all_reduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum);

  // In place on `root`. On other ranks the tensor is not changed.
  void reduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum, int root = 0);

  // In place, from `root` to all ranks.
  void broadcast(const torch::Tensor& tensor, int root = 0);

  // Returns every rank's tensor, by rank. They may differ in shape, but not in type.
  std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor);
  // The same on `root`. Returns nothing on other ranks.
  std::vector<torch::Tensor> gather(const torch::Tensor& tensor, int root = 0);

  // Bytes of any length.
  std::vector<std::string> all_gather_bytes(std::string_view bytes);
  std::vector<std::string> gather_bytes(std::string_view bytes, int root = 0);
  std::string broadcast_bytes(std::string_view bytes, int root = 0);

  // out = the sum of all ranks' parts in the order of tree.h over `leaves`. `out` may be the first
  // of the parts. This is the only collective that does not wait for the background thread, because
  // that thread calls it.
  void sum_parts(const Parts& parts, const torch::Tensor& out);

  void barrier();

  // Returns every rank's `word`, by rank. It is as cheap as a barrier.
  std::vector<std::uint64_t> vote(std::uint64_t word);

  // Collective. Memory that all ranks have mapped, filled with zeros. Nothing if they are not on
  // one host.
  virtual std::optional<torch::Tensor> shared_memory(std::size_t bytes) = 0;

  // Must be called between writing shared_memory() and reading what other ranks wrote there.
  void synchronize();

  // Not collective. Called by the thread that has computed the tensor, or has told a device to,
  // before it gives the tensor to the thread that reduces it in the background (Parts::after). Null
  // if that thread need not wait for a device.
  virtual std::shared_ptr<StreamPoint> ready(const torch::Tensor& /*tensor*/) { return nullptr; }

  // Not collective. `wait` must return when the sum_parts() calls of another thread are done. An
  // empty function ends the registration. All ranks must have started the same sums before their
  // next collective. Otherwise one rank's sum is paired with another rank's collective, and both
  // throw CommError, which names the two operations.
  void set_background(std::function<void()> wait) { background_ = std::move(wait); }

  // Not collective. Reports to the other ranks that this rank fails, and why. They throw.
  void abort(std::string_view reason,
             process::FailureKind kind = process::FailureKind::kError) noexcept {
    do_abort(reason, kind);
  }

  // Not collective. The first failure of a rank of this host, if one is known. Its rank is the one
  // that messages use, which is the rank in the run. Nothing if the ranks of this host share no
  // memory; then check() throws what is known.
  virtual std::optional<process::RankFailure> failure() const { return std::nullopt; }

  // Not collective. Throws WorkerError if another rank is known to have failed.
  virtual void check() {}

  // Not collective. Says how far training is, for messages about this rank.
  virtual void set_progress(std::int64_t /*epoch*/, std::int64_t /*batch*/) {}

  // Not collective. Says whether this rank now does work that the other ranks take no part in and
  // that may take long: loading, saving, a callback. Ranks that wait for it then use a longer time
  // limit; see HostGroup::kAloneLimits.
  virtual void set_alone(bool /*alone*/) {}

  // "shm", "gloo", … for messages and logs.
  virtual std::string name() const = 0;

 protected:
  explicit Communicator(const Topology& topology) : topology_(topology) {}

  // Each kind of communicator implements these. Pointers are to contiguous memory of the CPU.
  friend class Hierarchical;  // consists of two other communicators and calls these functions
  friend class TwoPlanes;     // has another communicator and calls these functions
  virtual std::vector<std::uint64_t> do_vote(std::uint64_t word) = 0;
  // All ranks are about to make a collective on their devices. Returns every rank's `tag`, by rank.
  // It must not be paired with any other collective.
  virtual std::vector<std::uint64_t> do_announce(std::uint64_t tag) = 0;
  virtual void do_abort(std::string_view reason, process::FailureKind kind) noexcept = 0;
  virtual void do_barrier() { do_vote(0); }
  virtual void do_synchronize() { do_barrier(); }
  virtual void do_broadcast(std::byte* data, const Elements& elements, int root) = 0;
  // Without a root, every rank receives.
  virtual std::vector<std::string> do_gather(std::string_view mine, std::optional<int> root) = 0;
  // Which rank has which terms of a sum, and the order of adding them. It is the same for every sum
  // over the same number of leaves, and is kept because it costs more to make than a small sum.
  struct ReductionPlan {
    ReductionPlan(std::vector<std::vector<TreeNode>> nodes_of_ranks, int leaves);

    std::vector<std::vector<TreeNode>> nodes;  // of every rank
    Tree tree;                                 // of all nodes, rank after rank
    std::size_t most = 0;                      // the largest number of nodes of a rank
    int leaves = 1;
  };
  struct Reduction {
    const ReductionPlan& plan;
    std::span<const void* const> data;  // one array for each of this rank's nodes
    Elements elements;                  // of every array
    ReduceOp op = ReduceOp::kSum;
    bool gradients = false;  // called by sum_parts(); must not be paired with another reduction
  };
  // `outputs` has one array per output of the plan's tree. A single one may be an array of `data`.
  virtual void do_reduce(const Reduction& reduction, std::span<std::byte* const> outputs) = 0;

  struct DeviceReduction {
    const ReductionPlan& plan;
    const Tree* own = nullptr;         // adds up `terms` to this rank's nodes; null: they are nodes
    std::vector<torch::Tensor> terms;  // of this rank, all like `out`; overwritten
    torch::Tensor out;                 // may be the first of the terms
    std::shared_ptr<StreamPoint> after;  // when the terms are complete; null: when it is called
    ReduceOp op = ReduceOp::kSum;
    bool gradients = false;  // as in Reduction
    // As which numbers are added and sent. A conversion of float32 to bfloat16 rounds every term.
    torch::ScalarType type = torch::kFloat32;
  };
  // Collectives on tensors that are not staged through the CPU. They return when the result is
  // there for any stream.
  class DeviceCollectives {
   public:
    virtual ~DeviceCollectives() = default;
    virtual void reduce(const DeviceReduction& reduction) = 0;
    virtual void broadcast(const torch::Tensor& tensor, int root) = 0;
    // Without a root, every rank receives. Types and shapes may differ.
    virtual std::vector<torch::Tensor> gather(const torch::Tensor& tensor,
                                              std::optional<int> root) = 0;
  };
  // Collective if the device has not been used yet. Null: its tensors are staged.
  virtual DeviceCollectives* on_device(const torch::Device& /*device*/) { return nullptr; }

 private:
  struct ReductionOrder {
    ReductionPlan plan;  // of all ranks' nodes
    Tree own;            // adds up this rank's terms
  };
  const ReductionOrder& order(int leaves, const std::vector<TreeNode>& terms = {});
  void reduce_rounded(const Reduction& reduction, std::byte* out);
  bool sum_on_device(const Parts& parts, const torch::Tensor& out);
  void wait_for_background() const {
    if (background_) background_();
  }

  Topology topology_;
  std::function<void()> background_;
  // The key is the number of leaves and this rank's terms.
  std::map<std::pair<int, std::vector<TreeNode>>, ReductionOrder> orders_;
};

// Calls set_alone(true), and set_alone(false) when it is destroyed.
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
