// Connects ranks of several hosts through a process group of LibTorch (Gloo).
//
// It does not use the process group's own reductions, because their order of adding is not
// documented. Instead, ranks exchange the parts, add them up in our order, and exchange the
// results.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/process/host_group.h"
#include "lockstep/rendezvous/rendezvous.h"

namespace lockstep::comm {

struct C10dOptions {
  Topology topology;
  std::string backend = "gloo";
  std::string address = "127.0.0.1";  // of this host, as other hosts reach it
  std::string group = "world";        // the name of this group among the groups of the run
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // The ranks that one process forked on this host, if any. This group is checked first for a
  // failed rank, because the process that forked a rank knows best how it ended.
  process::HostGroup* host_group = nullptr;
  // The ranks of this host, if this rank is their leader. They are notified while it waits for
  // other hosts.
  process::HostGroup* inside = nullptr;
};

class C10d : public Communicator {
 public:
  // Collective among the ranks of the group. `rendezvous` has the ranks of the whole run.
  // `world_ranks` are the ranks of the run that belong to this group.
  C10d(const C10dOptions& options, std::shared_ptr<rendezvous::Rendezvous> rendezvous,
       std::vector<int> world_ranks);
  ~C10d() override;

  std::optional<torch::Tensor> shared_memory(std::size_t) override { return std::nullopt; }
  std::optional<process::RankFailure> failure() const override;
  void check() override;
  void set_progress(std::int64_t epoch, std::int64_t batch) override;
  void set_alone(bool alone) override;
  std::string name() const override;

 protected:
  void do_abort(std::string_view reason, process::FailureKind kind) noexcept override;
  void do_barrier() override;
  std::vector<std::uint64_t> do_vote(std::uint64_t word) override;
  std::vector<std::uint64_t> do_announce(std::uint64_t tag) override;
  void do_broadcast(std::byte* data, const Elements& elements, int root) override;
  std::vector<std::string> do_gather(std::string_view mine, std::optional<int> root) override;
  void do_reduce(const Reduction& reduction, std::span<std::byte* const> outputs) override;

 private:
  class Group;

  // Returns every rank's message, by rank. All have the same length. A message ends with room for a
  // tag, which this function writes. `what` describes the collective. Throws if another rank called
  // a different one.
  std::vector<torch::Tensor> exchange(const std::string& what, const torch::Tensor& message);
  std::vector<std::uint64_t> exchange_words(const std::string& what, std::uint64_t word);
  static std::string describe_reduce(const Reduction& reduction);
  void reduce_small(const Reduction& reduction, std::span<std::byte* const> outputs);
  void reduce_by_parts(const Reduction& reduction, std::span<std::byte* const> outputs);

  std::unique_ptr<Group> group_;
};

}  // namespace lockstep::comm
