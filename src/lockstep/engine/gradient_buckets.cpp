#include "lockstep/engine/gradient_buckets.h"

#include <mutex>
#include <optional>
#include <utility>

#include <torch/utils.h>

#include "lockstep/engine/background_sums.h"
#include "lockstep/engine/gradient_hook.h"

namespace lockstep {

class GradientBuckets::BucketState : public std::enable_shared_from_this<BucketState> {
 public:
  BucketState(optim::FlatParameters& parameters, comm::Communicator& communicator,
              BucketOptions options)
      : parameters_(parameters), options_(std::move(options)), sums_(communicator) {
    for (std::size_t i = 0; i < parameters_.buffers().size(); ++i) {
      if (parameters_.buffers()[i].is_trainable()) fill(i);
    }
  }

  bool worth_it() const { return buckets_.size() > 1; }
  bool armed() const { return armed_; }

  void arm() {
    for (auto& bucket : buckets_) bucket.missing = 0;
    for (auto& member : members_) {
      member.awaited = member.parameter.requires_grad();
      if (!member.awaited) continue;
      ++buckets_[member.bucket].missing;
      if (worth_it()) hook(member);
    }
    next_ = 0;
    armed_ = true;
  }

  // Autograd calls this when the gradient of a parameter is complete.
  void on_gradient(std::size_t index) {
    BucketParameter& member = members_[index];
    // A gradient that is not in the bucket's memory (it is sparse, or the user replaced it) is
    // copied there after backward(). The bucket is then sent after backward(), too.
    const torch::Tensor& grad = member.parameter.grad();
    const bool in_place =
        grad.defined() && grad.layout() == torch::kStrided && grad.data_ptr() == member.place;
    if (!armed_ || !in_place) return;
    {
      const std::lock_guard lock(mutex_);
      if (!std::exchange(member.awaited, false)) return;
      --buckets_[member.bucket].missing;
    }
    send_off(false);
  }

  void finish() {
    send_off(true);
    armed_ = false;
    sums_.finish();
  }

 private:
  struct Bucket {
    std::vector<torch::Tensor> sets;           // its part of each set of gradients
    std::optional<std::size_t> marks_of = {};  // the buffer whose marks are in front
    std::int64_t missing = 0;                  // gradients that it waits for
  };

  struct BucketParameter {
    torch::Tensor parameter;
    std::size_t bucket = 0;
    const void* place = nullptr;  // of its gradient in the set that is filled last
    GradientHook hook = {};
    bool awaited = false;  // in this backward()
  };

  // Fills buckets from the last parameter to the first. The first bucket is small, so that sending
  // starts early. The last one contains the marks: when it is sent, all used parameters are known.
  void fill(std::size_t index) {
    const optim::FlatParameters::Buffer& buffer = parameters_.buffers()[index];
    const std::size_t sets =
        options_.nodes.empty() ? buffer.messages.size() : options_.nodes.size();
    const auto width = static_cast<std::int64_t>(buffer.grads.element_size());
    const std::int64_t marks = buffer.messages.front().numel() - buffer.grads.numel();
    std::int64_t end = buffer.grads.numel();
    std::int64_t limit = std::min<std::int64_t>(options_.bytes, 1 << 20);
    for (std::size_t i = buffer.slices.size(); i-- > 0;) {
      const auto& slice = buffer.slices[i];
      members_.push_back({.parameter = slice.parameter,
                          .bucket = buckets_.size(),
                          .place = slice.set_grads[sets - 1].data_ptr()});
      if ((end - slice.offset) * width < limit && i > 0) continue;
      const std::int64_t begin = i == 0 ? 0 : marks + slice.offset;
      Bucket bucket;
      if (i == 0) bucket.marks_of = index;
      for (std::size_t set = 0; set < sets; ++set) {
        bucket.sets.push_back(buffer.messages[set].narrow(0, begin, marks + end - begin));
      }
      buckets_.push_back(std::move(bucket));
      end = slice.offset;
      limit = options_.bytes;
    }
  }

  void hook(BucketParameter& member) {
    const auto index = static_cast<std::size_t>(&member - members_.data());
    member.hook.attach(member.parameter, [state = weak_from_this(), index] {
      if (const auto alive = state.lock()) alive->on_gradient(index);
    });
  }

  void send_off(bool all) {
    const std::lock_guard lock(mutex_);
    while (next_ < buckets_.size() && (all || buckets_[next_].missing == 0)) {
      const Bucket& bucket = buckets_[next_++];
      if (const auto buffer = bucket.marks_of) {
        parameters_.note_use(*buffer);
        parameters_.write_marks(*buffer, 0);
      }
      sums_.add({.leaves = options_.leaves,
                 .tensors = bucket.sets,
                 .nodes = options_.nodes,
                 .wire = options_.wire});
    }
  }

  optim::FlatParameters& parameters_;
  BucketOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<BucketParameter> members_;
  bool armed_ = false;
  std::size_t next_ = 0;  // the bucket to be sent next
  std::mutex mutex_;
  BackgroundSums sums_;
};

GradientBuckets::GradientBuckets(optim::FlatParameters& parameters,
                                 comm::Communicator& communicator, const BucketOptions& options)
    : state_(std::make_shared<BucketState>(parameters, communicator, options)) {}

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
