// A communicator with two planes. Another communicator, the control plane, does everything on the
// CPU: votes, bytes, tensors in the memory of the CPU, failures. A data plane (device_plane.h)
// sends and sums tensors that are on devices. docs/decisions/nccl.md says how.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_plane.h"

namespace lockstep::comm {

// In which order numbers on devices are added.
enum class SumOrder {
  kOrdered,  // of tree.h: the same bits for any number of ranks, as on the CPU
  kFast,     // the data plane chooses it
};

// "ordered" or "fast". Throws ConfigError for another text.
SumOrder sum_order(const std::string& reduction);

struct TwoPlanesOptions {
  const PlaneFactory& factory;  // of the data plane; must outlive the communicator
  SumOrder order = SumOrder::kOrdered;
  // If the data plane cannot be used, because a rank has no device or two ranks have one: true
  // throws ConfigError, false warns and stages tensors through the CPU.
  bool required = false;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // of a collective on devices
};

// The data plane is started by the first collective on a tensor that it takes.
class TwoPlanes : public Communicator {
 public:
  TwoPlanes(const TwoPlanesOptions& options, std::unique_ptr<Communicator> control);
  ~TwoPlanes() override;

  std::optional<torch::Tensor> shared_memory(std::size_t bytes) override {
    return control_->shared_memory(bytes);
  }
  std::shared_ptr<StreamPoint> ready(const torch::Tensor& tensor) override;
  std::optional<process::RankFailure> failure() const override { return control_->failure(); }
  void check() override { control_->check(); }
  void set_progress(std::int64_t epoch, std::int64_t batch) override {
    control_->set_progress(epoch, batch);
  }
  void set_alone(bool alone) override { control_->set_alone(alone); }
  // The name of the control plane, and that of the data plane when it has been started:
  // "shm+nccl".
  std::string name() const override;

 protected:
  void do_abort(std::string_view reason, process::FailureKind kind) noexcept override {
    control_->abort(reason, kind);
  }
  std::vector<std::uint64_t> do_vote(std::uint64_t word) override {
    return control_->do_vote(word);
  }
  std::vector<std::uint64_t> do_announce(std::uint64_t tag) override {
    return control_->do_announce(tag);
  }
  void do_barrier() override { control_->do_barrier(); }
  void do_synchronize() override { control_->do_synchronize(); }
  void do_broadcast(std::byte* data, const Elements& elements, int root) override {
    control_->do_broadcast(data, elements, root);
  }
  std::vector<std::string> do_gather(std::string_view mine, std::optional<int> root) override {
    return control_->do_gather(mine, root);
  }
  void do_reduce(const Reduction& reduction, std::span<std::byte* const> outputs) override {
    control_->do_reduce(reduction, outputs);
  }
  DeviceCollectives* on_device(const torch::Device& device) override;

 private:
  class Data;  // the data plane, and what to do when it does not answer

  std::unique_ptr<Communicator> control_;
  std::unique_ptr<Data> data_;
};

}  // namespace lockstep::comm
