// Connects the ranks of one host through shared memory.
#pragma once

#include <memory>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/message_slots.h"
#include "lockstep/process/host_group.h"

namespace lockstep::comm {

// Its topology contains only the ranks of the group. The group must outlive the communicator.
class Shared : public Communicator {
 public:
  explicit Shared(process::HostGroup& host_group);

  std::optional<torch::Tensor> shared_memory(std::size_t bytes) override;
  std::optional<process::RankFailure> failure() const override {
    return host_group_.named_failure();
  }
  void check() override { host_group_.check_processes(); }
  void set_progress(std::int64_t epoch, std::int64_t batch) override {
    host_group_.set_progress(epoch, batch);
  }
  void set_alone(bool alone) override {
    host_group_.set_late_reason(alone ? process::HostGroup::LateReason::kAlone
                                      : process::HostGroup::LateReason::kNone);
  }
  std::string name() const override { return "shm"; }

 protected:
  void do_abort(std::string_view reason, process::FailureKind kind) noexcept override {
    host_group_.fail(rank(), reason, kind);
  }
  void do_barrier() override;
  std::vector<std::uint64_t> do_vote(std::uint64_t word) override;
  std::vector<std::uint64_t> do_announce(std::uint64_t tag) override;
  void do_synchronize() override;
  void do_broadcast(std::byte* data, const Elements& elements, int root) override;
  std::vector<std::string> do_gather(std::string_view mine, std::optional<int> root) override;
  void do_reduce(const Reduction& reduction, std::span<std::byte* const> outputs) override;

 private:
  std::vector<std::uint64_t> exchange_words(process::Operation operation, std::uint64_t word);
  // The next of the two slots. Other ranks may read it after the next HostGroup::meet().
  int next_turn() { return turn_ ^= 1; }

  process::HostGroup& host_group_;
  MessageSlots slots_;
  int turn_ = 0;
};

}  // namespace lockstep::comm
