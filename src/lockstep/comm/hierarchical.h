// Two levels: the ranks of a host communicate through shared memory, and one rank of each host, its
// leader, through the network.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

struct HierarchicalOptions {
  Topology topology;                    // of all ranks
  std::vector<std::vector<int>> hosts;  // each host's ranks, leader first; sorted by leader
  std::string name = "shm+gloo";        // for messages and logs
};

class Hierarchical : public Communicator {
 public:
  // `local` connects the ranks of this host, and `leaders` the leaders of all hosts, both in the
  // order of `hosts`. `leaders` is null on a rank that is not a leader.
  Hierarchical(const HierarchicalOptions& options, std::unique_ptr<Communicator> local,
               std::unique_ptr<Communicator> leaders);

  std::optional<torch::Tensor> shared_memory(std::size_t) override { return std::nullopt; }
  std::optional<process::RankFailure> failure() const override;
  void check() override;
  void set_progress(std::int64_t epoch, std::int64_t batch) override;
  void set_alone(bool alone) override;
  std::string name() const override { return name_; }

 protected:
  void do_abort(std::string_view reason, process::FailureKind kind) noexcept override;
  std::vector<std::uint64_t> do_vote(std::uint64_t word) override;
  std::vector<std::uint64_t> do_announce(std::uint64_t tag) override;
  void do_broadcast(std::byte* data, const Elements& elements, int root) override;
  std::vector<std::string> do_gather(std::string_view mine, std::optional<int> root) override;
  void do_reduce(const Reduction& reduction, std::span<std::byte* const> outputs) override;

 private:
  std::vector<std::uint64_t> exchange_words(std::string_view what, std::uint64_t word);

  struct HostRank {
    int host = 0;
    int local = 0;
  };
  HostRank place_of(int rank) const;

  // Runs the action. An error on one level is reported to the other level.
  template <typename Action>
  auto passing_on(const Action& action);

  struct Plans {
    ReductionPlan inside;   // adds up the nodes of this host's ranks
    ReductionPlan between;  // adds up the sums that are left on each host
  };
  const Plans& plans(const ReductionPlan& plan);

  std::string name_;
  std::vector<std::vector<int>> hosts_;
  int host_ = 0;  // the host of this rank
  std::unique_ptr<Communicator> local_;
  std::unique_ptr<Communicator> leaders_;
  std::map<int, Plans> plans_;  // the key is the number of leaves
};

}  // namespace lockstep::comm
