// Averages the gradients of a model over the ranks, as part of backward().
//
// A pass is one backward() that averages. It begins with the first gradient that is complete, and
// ends in a callback at the end of backward(). Parameters are in buckets, from the last to the
// first, which is the order in which backward() reaches them. A bucket is summed in the background
// when its gradients are complete. The order of the buckets is the same on every rank; a bucket
// with a parameter that the loss did not use, and all buckets after it, wait for the end.
//
// One backward() may be a pass of several reducers. Which of them it reaches first may differ from
// rank to rank, but the order of messages must not. So only one reducer sends before the end: the
// last one of those with a parameter that is trained, because backward() usually reaches it first.
// At the end the reducers follow each other from the last to the first, as buckets do.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/dist/gradient_message.h"
#include "lockstep/engine/gradient_hook.h"
#include "lockstep/state/named_tensors.h"

namespace lockstep::dist {

class GradientReducer : public std::enable_shared_from_this<GradientReducer> {
 public:
  struct Options {
    std::int64_t bucket_bytes = 8 << 20;  // of gradients that are summed together
    Wire wire = Wire::kFp32;              // how gradients are rounded and sent
  };
  // All ranks must make their reducers in the same order, and destroy them between the same passes.
  // It must be owned by a shared_ptr. Throws ConfigError, which names the parameter, if one of the
  // parameters has a reducer already.
  GradientReducer(const NamedTensors& parameters, const Options& options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Whether the parameter belongs to a reducer of this process.
  static bool has(const torch::Tensor& parameter);

  // Call it before each forward pass: parameters that were unfrozen get their hooks. Throws
  // ConfigError if the process has another group than when the reducer was made.
  void attach();

  // This rank's weight in the next pass.
  void set_weight(double weight);

  // Collective with the others' backward(): takes part without one. The weight is 0 if none is set.
  void pass_without_backward();

  // The order in which the passes of one backward() end.
  bool ends_before(const GradientReducer& other) const { return number_ > other.number_; }

  // While it is suspended, backward() only adds to this rank's gradients.
  void suspend() { ++suspended_; }
  void resume() { --suspended_; }

  // Whether the group in which it was made still exists.
  bool has_group() const;

  // The number of passes that were completed.
  std::uint64_t passes() const { return completed_; }

 private:
  struct BucketParameter {
    std::string name;
    torch::Tensor parameter;
    GradientHook hook = {};
    std::size_t bucket = 0;
    std::size_t index = 0;  // in the bucket
    bool used = false;      // by a backward() of this rank since the last pass
    bool awaited = false;   // its gradient is not yet in the bucket
  };
  struct Bucket {
    std::vector<std::size_t> members;
    GradientMessage message;
    std::int64_t missing = 0;  // gradients that it waits for
  };
  class Living;
  class PassEnd;
  class PassEnds;

  void add_hooks();
  void on_gradient(std::size_t index);
  void refuse_intruder(const BucketParameter& member);
  void begin_pass(double weight);
  void end_pass();
  void finish(std::uint64_t pass);
  void abandon(std::uint64_t pass) noexcept;
  void fill_buckets();
  void add_buckets(const std::vector<std::size_t>& members);
  void write(BucketParameter& member);
  void complete(std::size_t bucket);
  void send_complete();
  bool is_trained() const;
  std::array<std::int64_t, 3> place_of(std::size_t bucket) const;
  comm::Parts parts_of(std::size_t bucket) const;

  Options options_;
  std::uint64_t group_ = 0;  // the number of the group
  int ranks_ = 1;            // of the group
  std::int64_t number_ = 0;  // of this reducer in the process
  std::vector<BucketParameter> members_;
  std::vector<Bucket> buckets_;
  // The types and devices of the gradients, none for frozen parameters, for which the buckets were
  // made.
  using Kind = std::pair<torch::ScalarType, torch::Device>;
  std::vector<std::optional<Kind>> layout_;

  std::mutex mutex_;  // hooks of parameters on different devices run in different threads
  std::optional<double> next_weight_;
  int suspended_ = 0;
  std::uint64_t completed_ = 0;

  // The current pass.
  bool active_ = false;
  bool sends_early_ = false;  // no other reducer that backward() may reach sends before the end
  bool disturbed_ = false;    // another backward() has changed its gradients
  bool left_over_ = false;    // sums of a pass that failed may still be running
  std::uint64_t pass_ = 0;
  double weight_ = 1;
  std::size_t next_ = 0;                   // the bucket to be sent next
  std::optional<std::thread::id> thread_;  // in which gradients on the CPU are computed
};

}  // namespace lockstep::dist
