// A run of one rank.
#pragma once

#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

class Local : public Communicator {
 public:
  Local() : Communicator({}) {}

  std::optional<torch::Tensor> shared_memory(std::size_t bytes) override;
  std::string name() const override { return "local"; }

 protected:
  void do_abort(std::string_view, process::FailureKind) noexcept override {}
  void do_barrier() override {}
  std::vector<std::uint64_t> do_vote(std::uint64_t word) override { return {word}; }
  std::vector<std::uint64_t> do_announce(std::uint64_t tag) override { return {tag}; }
  void do_broadcast(std::byte*, const Elements&, int) override {}
  std::vector<std::string> do_gather(std::string_view mine, std::optional<int>) override {
    return {std::string(mine)};
  }
  void do_reduce(const Reduction& reduction, std::span<std::byte* const> outputs) override;
};

}  // namespace lockstep::comm
