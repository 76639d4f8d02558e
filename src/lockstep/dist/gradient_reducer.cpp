#include "lockstep/dist/gradient_reducer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/dist/group.h"

namespace lockstep::dist {
namespace {

// The parameters that belong to a reducer. Global, because average_gradients() has to know of all
// models of the process.
class ReducedParameters {
 public:
  static ReducedParameters& all() {
    static ReducedParameters parameters;
    return parameters;
  }

  bool insert(const torch::Tensor& parameter) {
    const std::lock_guard lock(mutex_);
    return parameters_.insert(parameter.unsafeGetTensorImpl()).second;
  }
  void erase(const torch::Tensor& parameter) {
    const std::lock_guard lock(mutex_);
    parameters_.erase(parameter.unsafeGetTensorImpl());
  }
  bool contains(const torch::Tensor& parameter) {
    const std::lock_guard lock(mutex_);
    return parameters_.contains(parameter.unsafeGetTensorImpl());
  }

 private:
  std::mutex mutex_;
  std::set<const c10::TensorImpl*> parameters_;
};

// Sums of these numbers over up to 4096 ranks are exact in float32.
std::int64_t small(std::uint64_t number) {
  return static_cast<std::int64_t>(number % 4096);
}

// Counted for each group, because the ranks of a group may have had different groups before.
std::int64_t next_number() {
  static std::uint64_t of_group = 0;
  static std::int64_t reducers = 0;
  if (std::exchange(of_group, group_number()) != of_group) reducers = 0;
  return reducers++;
}

}  // namespace

// All reducers of the process, except those without parameters.
class GradientReducer::Living {
 public:
  static Living& all() {
    static Living living;
    return living;
  }

  void insert(const GradientReducer* reducer) {
    const std::lock_guard lock(mutex_);
    reducers_.insert(reducer);
  }
  void erase(const GradientReducer* reducer) {
    const std::lock_guard lock(mutex_);
    reducers_.erase(reducer);
  }

  // Whether no other reducer of the group, whose passes would end before this one's, is trained.
  // It is the same on all ranks, because they freeze and unfreeze the same parameters.
  bool is_first_to_end(const GradientReducer& reducer) {
    const std::lock_guard lock(mutex_);
    return std::ranges::none_of(reducers_, [&](const GradientReducer* other) {
      return other->group_ == reducer.group_ && other->ends_before(reducer) && other->is_trained();
    });
  }

 private:
  std::mutex mutex_;
  std::set<const GradientReducer*> reducers_;
};

// Autograd holds this until backward() is over. If backward() fails, it is destroyed without a call
// of finish().
class GradientReducer::PassEnd {
 public:
  PassEnd(std::weak_ptr<GradientReducer> reducer, std::uint64_t pass)
      : reducer_(std::move(reducer)), pass_(pass) {}
  ~PassEnd() {
    if (const auto alive = reducer_.lock()) alive->abandon(pass_);
  }
  PassEnd(const PassEnd&) = delete;
  PassEnd& operator=(const PassEnd&) = delete;

  std::shared_ptr<GradientReducer> reducer() const { return reducer_.lock(); }

  void finish() const {
    if (const auto alive = reducer()) alive->finish(pass_);
  }

 private:
  std::weak_ptr<GradientReducer> reducer_;
  std::uint64_t pass_;
};

// The passes of one backward(). Autograd calls the ends of passes in the order in which they began,
// which may differ from rank to rank, so they are collected first. The first one that is collected
// adds another call, which follows all of them, in the same thread.
class GradientReducer::PassEnds {
 public:
  static void add(std::shared_ptr<const PassEnd> end) {
    thread_local std::weak_ptr<PassEnds> current;
    auto ends = current.lock();
    if (ends == nullptr || ends->finished_) {
      ends = std::make_shared<PassEnds>();
      current = ends;
      torch::autograd::Engine::get_default_engine().queue_callback([ends] { ends->finish(); });
    }
    ends->ends_.push_back(std::move(end));
  }

 private:
  void finish() {
    finished_ = true;
    std::vector<std::pair<std::shared_ptr<GradientReducer>, std::shared_ptr<const PassEnd>>> all;
    for (auto& end : ends_) {
      if (auto alive = end->reducer()) all.emplace_back(std::move(alive), std::move(end));
    }
    ends_.clear();
    std::ranges::sort(all,
                      [](const auto& a, const auto& b) { return a.first->ends_before(*b.first); });
    for (const auto& [reducer, end] : all) end->finish();
  }

  bool finished_ = false;
  std::vector<std::shared_ptr<const PassEnd>> ends_;
};

GradientReducer::GradientReducer(const NamedTensors& parameters, const Options& options)
    : options_(options), group_(group_number()), ranks_(group().size()), number_(next_number()) {
  if (options_.bucket_bytes < 1) {
    throw ConfigError("bucket_bytes: expected 1 or more, got {}", options_.bucket_bytes);
  }
  std::set<const c10::TensorImpl*> seen;
  for (const auto& [name, parameter] : parameters) {
    // Tied weights have two names.
    if (!parameter.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    if (has(parameter)) {
      throw ConfigError(
          "parameter {}: it belongs to another DistributedModel already; its gradient would be "
          "averaged twice",
          name);
    }
    members_.push_back({.name = name, .parameter = parameter});
  }
  for (const BucketParameter& member : members_) ReducedParameters::all().insert(member.parameter);
  if (!members_.empty()) Living::all().insert(this);
}

GradientReducer::~GradientReducer() {
  Living::all().erase(this);
  for (const BucketParameter& member : members_) ReducedParameters::all().erase(member.parameter);
}

bool GradientReducer::has(const torch::Tensor& parameter) {
  return ReducedParameters::all().contains(parameter);
}

bool GradientReducer::has_group() const {
  return group_ == group_number();
}

void GradientReducer::attach() {
  if (group_number() != 0 && !has_group() && group().size() > 1) {
    throw ConfigError(
        "DistributedModel: it was made before init_process_group() of the current process group; "
        "call prepare_ddp_model() after it");
  }
  if (ranks_ == 1) return;
  const std::lock_guard lock(mutex_);
  add_hooks();
}

void GradientReducer::add_hooks() {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    members_[i].hook.attach(members_[i].parameter, [self = weak_from_this(), i] {
      if (const auto alive = self.lock()) alive->on_gradient(i);
    });
  }
}

void GradientReducer::set_weight(double weight) {
  if (!std::isfinite(weight) || weight < 0) {
    throw ConfigError("weight: expected 0 or more, got {}", weight);
  }
  next_weight_ = weight;
}

void GradientReducer::on_gradient(std::size_t index) {
  const std::lock_guard lock(mutex_);
  BucketParameter& member = members_[index];
  if (!member.parameter.requires_grad()) return;  // it was frozen after the forward pass
  member.used = true;
  if (suspended_ > 0) return;
  if (torch::GradMode::is_enabled()) {
    throw ConfigError(
        "backward() of a DistributedModel: create_graph: expected false; the mean over the ranks "
        "has no graph. Compute the inner derivative with torch::autograd::grad, or call backward() "
        "inside of no_sync()");
  }
  if (!active_) {
    begin_pass(next_weight_.value_or(1));
    const auto end = std::make_shared<PassEnd>(weak_from_this(), pass_);
    torch::autograd::Engine::get_default_engine().queue_callback([end] { PassEnds::add(end); });
  }
  refuse_intruder(member);
  write(member);
  --buckets_[member.bucket].missing;
  send_complete();
}

// Without this check, gradients of two losses would be mixed.
void GradientReducer::refuse_intruder(const BucketParameter& member) {
  // Gradients on the CPU are computed by the thread that called backward(), those on other devices
  // by a thread per device.
  bool same_thread = true;
  if (member.parameter.device().is_cpu()) {
    if (!thread_) thread_ = std::this_thread::get_id();
    same_thread = thread_ == std::this_thread::get_id();
  }
  if (same_thread && member.awaited) return;
  disturbed_ = true;
  throw ConfigError(
      "parameter {}: two calls of backward() of one DistributedModel overlap, in two threads or "
      "one inside of the other; they must come one after another",
      member.name);
}

void GradientReducer::begin_pass(double weight) {
  if (!has_group()) {
    throw ConfigError(
        "backward() of a DistributedModel: its process group has ended; call it before cleanup(), "
        "or inside of no_sync()");
  }
  if (std::exchange(left_over_, false)) background_sums().finish();
  fill_buckets();
  add_hooks();  // for parameters that were unfrozen, if the module was called without attach()
  for (Bucket& bucket : buckets_) {
    bucket.missing = static_cast<std::int64_t>(bucket.members.size());
    for (const std::size_t i : bucket.members) members_[i].awaited = true;
  }
  ++pass_;
  weight_ = weight;
  next_weight_.reset();
  next_ = 0;
  disturbed_ = false;
  thread_.reset();
  active_ = true;
  sends_early_ = Living::all().is_first_to_end(*this);
}

bool GradientReducer::is_trained() const {
  return std::ranges::any_of(
      members_, [](const BucketParameter& member) { return member.parameter.requires_grad(); });
}

// Makes the buckets, if they do not fit the parameters any more: one was frozen or unfrozen, or got
// another type or device.
void GradientReducer::fill_buckets() {
  std::vector<std::optional<Kind>> layout;
  std::vector<torch::Device> devices;  // the same order on all ranks, whatever their numbers
  for (const BucketParameter& member : members_) {
    const torch::Device device = member.parameter.device();
    layout.push_back(member.parameter.requires_grad()
                         ? std::optional(Kind(GradientMessage::type_of(member.parameter), device))
                         : std::nullopt);
    if (std::ranges::find(devices, device) == devices.end()) devices.push_back(device);
  }
  if (layout == layout_) return;
  buckets_.clear();
  for (const auto type : {torch::kFloat32, torch::kFloat64}) {
    for (const torch::Device& device : devices) {
      std::vector<std::size_t> alike;
      for (std::size_t i = members_.size(); i-- > 0;) {
        if (layout[i] == Kind(type, device)) alike.push_back(i);
      }
      add_buckets(alike);
    }
  }
  layout_ = std::move(layout);
}

// The first bucket is small, so that sending starts early.
void GradientReducer::add_buckets(const std::vector<std::size_t>& members) {
  std::int64_t limit = std::min<std::int64_t>(options_.bucket_bytes, 1 << 20);
  std::int64_t bytes = 0;
  std::vector<std::size_t> own;
  std::vector<torch::Tensor> parameters;
  for (const std::size_t i : members) {
    BucketParameter& member = members_[i];
    member.bucket = buckets_.size();
    member.index = own.size();
    own.push_back(i);
    parameters.push_back(member.parameter);
    bytes +=
        member.parameter.numel() *
        static_cast<std::int64_t>(c10::elementSize(GradientMessage::type_of(member.parameter)));
    if (bytes < limit && i != members.back()) continue;
    buckets_.push_back({.members = std::exchange(own, {}),
                        .message = GradientMessage(std::exchange(parameters, {}))});
    bytes = 0;
    limit = options_.bucket_bytes;
  }
}

void GradientReducer::write(BucketParameter& member) {
  buckets_[member.bucket].message.write_gradient(member.index,
                                                 {.weight = weight_, .is_new = member.used});
  member.awaited = false;
}

std::array<std::int64_t, 3> GradientReducer::place_of(std::size_t bucket) const {
  return {small(static_cast<std::uint64_t>(number_)), small(pass_), small(bucket)};
}

// Marks are 0 or 1. A sum of them may be rounded: it is 0 only if all are.
comm::Parts GradientReducer::parts_of(std::size_t bucket) const {
  return {.leaves = ranks_,
          .tensors = {buckets_[bucket].message.array()},
          .wire = options_.wire,
          .exact = GradientMessage::kHead};
}

// Writes everything that the message still lacks.
void GradientReducer::complete(std::size_t bucket) {
  Bucket& to = buckets_[bucket];
  for (const std::size_t i : to.members) {
    if (members_[i].awaited) write(members_[i]);
  }
  to.message.write_head({.weight = weight_, .place = place_of(bucket)});
}

// The last bucket is summed at the end of backward(), which follows: another thread would only cost
// time.
void GradientReducer::send_complete() {
  while (sends_early_ && next_ + 1 < buckets_.size() && buckets_[next_].missing == 0) {
    complete(next_);
    background_sums().add(parts_of(next_));
    ++next_;
  }
}

void GradientReducer::end_pass() {
  if (disturbed_) {
    throw ConfigError(
        "backward() of a DistributedModel: another backward() of the same model has changed its "
        "gradients; they must come one after another");
  }
  background_sums().finish();
  for (; next_ < buckets_.size(); ++next_) {
    complete(next_);
    group().sum_parts(parts_of(next_), buckets_[next_].message.array());
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i].message.has_place(place_of(i), ranks_)) continue;
    throw CommError(
        "backward() of a DistributedModel: bucket {} of pass {} met another one of another rank; "
        "every rank must call backward(), or no_batch(), of the same models in the same order",
        i, pass_);
  }
  for (Bucket& bucket : buckets_) bucket.message.read_means();
  for (BucketParameter& member : members_) member.used = false;
  ++completed_;
  active_ = false;
}

void GradientReducer::finish(std::uint64_t pass) {
  const std::lock_guard lock(mutex_);
  if (active_ && pass == pass_) end_pass();
}

void GradientReducer::abandon(std::uint64_t pass) noexcept {
  const std::lock_guard lock(mutex_);
  if (!active_ || pass != pass_) return;
  active_ = false;
  left_over_ = true;
}

void GradientReducer::pass_without_backward() {
  if (ranks_ == 1) return;
  const std::lock_guard lock(mutex_);
  if (suspended_ > 0) return;
  if (active_) throw ConfigError("no_batch: was called while backward() is running");
  begin_pass(next_weight_.value_or(0));
  try {
    end_pass();
  } catch (...) {
    active_ = false;
    left_over_ = true;
    throw;
  }
}

}  // namespace lockstep::dist
