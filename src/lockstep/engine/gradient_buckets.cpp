#include "lockstep/engine/gradient_buckets.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/utils.h>

namespace lockstep {

class GradientBuckets::State {
 public:
  State(optim::FlatParameters& parameters, comm::Communicator& communicator,
        const BucketOptions& options)
      : communicator_(communicator), leaves_(options.leaves) {
    for (const auto& buffer : parameters.buffers()) fill(buffer, options.bytes);
  }

  ~State() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  bool worth_it() const { return buckets_.size() > 1; }
  bool armed() const { return armed_; }

  void arm() {
    for (auto& bucket : buckets_) bucket.missing = bucket.parameters;
    next_ = 0;
    done_ = 0;
    error_ = nullptr;
    armed_ = true;
    if (!thread_.joinable()) thread_ = std::thread([this] { reduce_buckets(); });
  }

  // By autograd, once the gradient of a parameter is complete.
  void on_gradient(std::size_t bucket) {
    if (!armed_) return;
    {
      const std::lock_guard lock(mutex_);
      --buckets_[bucket].missing;
    }
    send_off(false);
  }

  void finish() {
    send_off(true);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_ == buckets_.size() || error_ != nullptr; });
    armed_ = false;
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

  // A hook for every parameter.
  struct Member {
    torch::Tensor parameter;
    std::size_t bucket = 0;
    const void* place = nullptr;  // of its gradient in the last set, which is filled last
  };
  const std::vector<Member>& members() const { return members_; }
  void keep(std::shared_ptr<torch::autograd::Node> accumulator) {
    accumulators_.push_back(std::move(accumulator));
  }

 private:
  struct Bucket {
    std::vector<torch::Tensor> sets;  // its part of each set of gradients
    std::int64_t parameters = 0;
    std::int64_t missing = 0;
  };

  // From the last parameter to the first; the first bucket is small, so that sending starts early.
  void fill(const optim::FlatParameters::Buffer& buffer, std::int64_t bytes) {
    const auto width = static_cast<std::int64_t>(buffer.grads.element_size());
    std::int64_t end = buffer.grads.numel();
    std::int64_t limit = std::min<std::int64_t>(bytes, 1 << 20);
    Bucket bucket;
    for (std::size_t i = buffer.slices.size(); i-- > 0;) {
      const auto& slice = buffer.slices[i];
      ++bucket.parameters;
      members_.push_back({slice.parameter, buckets_.size(), slice.set_grads.back().data_ptr()});
      if ((end - slice.offset) * width < limit && i > 0) continue;
      for (const auto& set : buffer.grad_sets) {
        bucket.sets.push_back(set.narrow(0, slice.offset, end - slice.offset));
      }
      buckets_.push_back(std::exchange(bucket, {}));
      end = slice.offset;
      limit = bytes;
    }
  }

  void send_off(bool all) {
    bool any = false;
    {
      const std::lock_guard lock(mutex_);
      while (next_ < buckets_.size() && (all || buckets_[next_].missing == 0)) {
        waiting_.push_back(next_++);
        any = true;
      }
    }
    if (any) changed_.notify_all();
  }

  void reduce_buckets() {
    while (true) {
      std::size_t index = 0;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
        if (ending_) return;
        index = waiting_.front();
        waiting_.pop_front();
      }
      std::exception_ptr error;
      try {
        const auto& sets = buckets_[index].sets;
        communicator_.sum_parts({.leaves = leaves_, .tensors = sets}, sets.front());
      } catch (...) {
        error = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        ++done_;
        if (error != nullptr && error_ == nullptr) error_ = error;
      }
      changed_.notify_all();
    }
  }

  comm::Communicator& communicator_;
  int leaves_;
  std::vector<Bucket> buckets_;
  std::vector<Member> members_;
  // A parameter's accumulator lives only as long as somebody holds it.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  bool armed_ = false;
  std::size_t next_ = 0;  // the bucket to go off next
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::size_t> waiting_;
  std::size_t done_ = 0;
  std::exception_ptr error_;
  bool ending_ = false;
  std::thread thread_;
};

GradientBuckets::GradientBuckets(optim::FlatParameters& parameters,
                                 comm::Communicator& communicator, const BucketOptions& options)
    : state_(std::make_shared<State>(parameters, communicator, options)) {
  struct Hook : torch::autograd::FunctionPostHook {
    Hook(std::weak_ptr<State> owner, torch::Tensor of, std::size_t in, const void* at)
        : state(std::move(owner)), parameter(std::move(of)), bucket(in), place(at) {}
    torch::autograd::variable_list operator()(
        const torch::autograd::variable_list& outputs,
        const torch::autograd::variable_list& /*inputs*/) override {
      // One that is not in the bucket (sparse, or replaced by the user) is brought there after
      // backward(); the bucket then goes off late.
      const auto alive = state.lock();
      const torch::Tensor& grad = parameter.grad();
      const bool in_place =
          grad.defined() && grad.layout() == torch::kStrided && grad.data_ptr() == place;
      if (alive && in_place) alive->on_gradient(bucket);
      return outputs;
    }
    std::weak_ptr<State> state;
    torch::Tensor parameter;
    std::size_t bucket;
    const void* place;
  };
  if (!state_->worth_it()) return;
  for (const auto& [parameter, bucket, place] : state_->members()) {
    auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
    accumulator->add_post_hook(std::make_unique<Hook>(state_, parameter, bucket, place));
    state_->keep(std::move(accumulator));
  }
}

GradientBuckets::~GradientBuckets() = default;

bool GradientBuckets::worth_it() const {
  return state_->worth_it();
}

void GradientBuckets::arm() {
  state_->arm();
}

bool GradientBuckets::armed() const {
  return state_->armed();
}

void GradientBuckets::finish() {
  if (!state_->armed()) state_->arm();
  state_->finish();
}

}  // namespace lockstep
