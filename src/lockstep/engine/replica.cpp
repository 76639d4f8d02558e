#include "lockstep/engine/replica.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <c10/util/SmallVector.h>
#include <torch/utils.h>

#include "lockstep/compute/parallel.h"
#include "lockstep/engine/gradient_buckets.h"

namespace lockstep {
namespace {

using optim::ElementRange;
using optim::FlatParameters;
using optim::Part;

// How many elements are processed at a time.
constexpr std::int64_t kPiece = 16384;

}  // namespace

Replica::Replica(const NamedTensors& parameters, comm::Communicator& communicator,
                 const ReplicaOptions& options)
    : communicator_(communicator),
      options_(options),
      range_(comm::leaves_of({.rank = communicator.rank(), .size = communicator.size()},
                             options.shards)),
      sums_(sums_of(communicator.rank())) {
  const bool alone = communicator_.size() == 1;
  shared_ = !alone && options_.share_memory && can_share(parameters);
  optim::FlatOptions flat{.grad_sets = sums_.arrays()};
  if (shared_) {
    flat.grad_sets = plan_shared_sets();
    flat.owns_values = communicator_.is_primary();
    flat.memory = [this](std::int64_t count, const torch::TensorOptions& like) {
      const auto bytes = static_cast<std::size_t>(count) * like.dtype().itemsize();
      return communicator_.shared_memory(bytes)->view(c10::typeMetaToScalarType(like.dtype()));
    };
  }
  parameters_ = std::make_unique<FlatParameters>(parameters, flat);
  weights_ = torch::zeros({options_.shards}, torch::kFloat64);
  if (alone) return;
  if (shared_) {
    block_norms_ =
        communicator_.shared_memory(static_cast<std::size_t>(parameters_->num_blocks()) * 8)
            ->view(torch::kFloat64);
    weights_ = communicator_.shared_memory(static_cast<std::size_t>(options_.shards) * 8)
                   ->view(torch::kFloat64);
    communicator_.synchronize();
  } else {
    make_buckets();
  }
  send();
}

comm::RunningSums Replica::sums_of(int rank) const {
  return comm::RunningSums({.share = {.rank = rank, .size = communicator_.size()},
                            .leaves = options_.shards,
                            .keep_all = !options_.one_batch_per_update});
}

// Numbers the sets of gradients of all ranks, rank after rank. Returns how many there are.
std::int64_t Replica::plan_shared_sets() {
  std::int64_t total = 0;
  std::vector<comm::TreeNode> nodes;
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    const comm::RunningSums sums = sums_of(rank);
    if (rank == communicator_.rank()) first_set_ = total;
    marks_.push_back(total);
    for (std::size_t i = 0; i < sums.nodes().size(); ++i) {
      terms_.push_back(total + static_cast<std::int64_t>(i));
      nodes.push_back(sums.nodes()[i]);
    }
    total += sums.arrays();
  }
  tree_ = std::make_unique<comm::Tree>(std::move(nodes), options_.shards);
  return total;
}

void Replica::make_buckets() {
  if (!options_.overlap) return;
  buckets_.reset();  // ends the thread of the old ones
  buckets_ = std::make_unique<GradientBuckets>(*parameters_, communicator_,
                                               BucketOptions{.leaves = options_.shards,
                                                             .nodes = sums_.nodes(),
                                                             .bytes = options_.bucket_bytes,
                                                             .wire = options_.wire});
}

void Replica::send() {
  if (communicator_.size() == 1) return;
  for (const auto& buffer : parameters_->buffers()) {
    if (buffer.is_trainable()) {
      if (!shared_) communicator_.broadcast(buffer.values);
      continue;
    }
    // Frozen parameters: each rank has its own tensor, which the user may have replaced by another.
    for (const auto& slice : buffer.slices) communicator_.broadcast(slice.parameter);
  }
  for (const auto& [name, tensor] : parameters_->left_alone()) {
    if (tensor.layout() == torch::kStrided) communicator_.broadcast(tensor);
  }
}

void Replica::send(const optim::Optimizer& optimizer) {
  if (shared_ || communicator_.size() == 1) return;
  for (const torch::Tensor& tensor : optimizer.tensors()) communicator_.broadcast(tensor);
}

// Also after a failure, the model must be in memory that no other process writes to, because the
// caller may use it.
Replica::~Replica() {
  buckets_.reset();
  if (shared_ && !finished_) parameters_->move_to_own_memory();
}

bool Replica::can_share(const NamedTensors& parameters) const {
  const bool plain = std::ranges::all_of(parameters, [](const auto& item) {
    const torch::Tensor& tensor = item.second;
    return !tensor.defined() || (!tensor.requires_grad() && !tensor.is_floating_point()) ||
           (tensor.device().is_cpu() &&
            (tensor.scalar_type() == torch::kFloat32 || tensor.scalar_type() == torch::kFloat64));
  });
  return plain && communicator_.shared_memory(1).has_value();
}

std::int64_t Replica::set_of(int local) const {
  return first_set_ + sums_.array_of(local);
}

void Replica::begin_shard(int local, bool last) {
  if (local == 0) make_unfrozen_trainable();
  if (shared_ || range_.count() > 1) parameters_->bind_grads(set_of(local));
  last_shard_ = last && local + 1 == range_.count();
}

void Replica::make_unfrozen_trainable() {
  if (parameters_->make_unfrozen_trainable() && buckets_ != nullptr) make_buckets();
}

// The buckets are not armed earlier, because the user may call backward() in between, and its
// gradients must not be sent.
void Replica::before_backward() {
  if (last_shard_ && overlaps()) buckets_->arm();
}

void Replica::end_shard(int local) {
  parameters_->collect_grads();
  for (const auto& addition : sums_.additions(local)) add_sets(addition);
}

// Adds one piece at a time, so that the piece is still in the cache when its memory is cleared.
void Replica::add_sets(const comm::RunningSums::Addition& addition) {
  const Profiler::TimedScope scope(options_.profiler, Activity::kReduce);
  static const comm::Tree pair(comm::leaf_nodes({0, 2}), 2);
  for (const auto& buffer : parameters_->buffers()) {
    if (!buffer.is_trainable()) continue;
    const torch::Tensor& to = buffer.grad_sets[static_cast<std::size_t>(first_set_ + addition.to)];
    const torch::Tensor& from =
        buffer.grad_sets[static_cast<std::size_t>(first_set_ + addition.from)];
    if (!to.device().is_cpu()) {
      if (comm::is_rounded(options_.wire, to.scalar_type())) {
        to.copy_(to.to(torch::kBFloat16).add_(from.to(torch::kBFloat16)));
      } else {
        to.add_(from);
      }
      from.zero_();
      continue;
    }
    const auto width = static_cast<std::int64_t>(to.element_size());
    const auto at = [&](const torch::Tensor& set, std::int64_t element) {
      return static_cast<std::byte*>(set.data_ptr()) + element * width;
    };
    compute::for_ranges({.size = to.numel(), .grain = 4 * kPiece}, [&](std::int64_t first,
                                                                       std::int64_t last) {
      for (std::int64_t i = first; i < last; i += kPiece) {
        const std::int64_t count = std::min(kPiece, last - i);
        const void* const inputs[] = {at(to, i), at(from, i)};
        void* const outputs[] = {at(to, i)};
        pair.reduce(inputs, outputs, count, to.scalar_type(), comm::ReduceOp::kSum, options_.wire);
        std::memset(at(from, i), 0, static_cast<std::size_t>(count * width));
      }
    });
  }
}

bool Replica::overlaps() const {
  return buckets_ != nullptr && buckets_->worth_it();
}

void Replica::wait_for_all() {
  const Profiler::TimedScope scope(options_.profiler, Activity::kWait);
  communicator_.synchronize();
}

Replica::Reduced Replica::reduce(const optim::Optimizer& optimizer, const Update& update) {
  const bool in_parts = shared_ && optimizer.steps_in_parts();
  const Part part = own_part(optimizer);
  if (update.buffers != nullptr) update.buffers->publish();
  if (update.scale_of) write_weights(update.weights);
  sum_gradients();
  if (update.buffers != nullptr) update.buffers->take();
  // If one worker steps for all, it needs the sums of the other parts, too.
  if (shared_ && !in_parts) wait_for_all();
  const bool steps = !shared_ || in_parts || communicator_.is_primary();
  const bool needs_norm = update.clip_norm || update.wants_norm;

  Reduced reduced{.scale = update.scale_of ? update.scale_of(gathered_weights()) : 1.0};
  parameters_->set_mark(false);
  // Before clipping, which would make infinite values finite.
  if (update.skip_non_finite) reduced.finite = are_sums_finite();
  {
    const Profiler::TimedScope scope(options_.profiler, Activity::kOptimizer);
    if (update.clip_value && steps) {
      parameters_->clip_grad_value(*update.clip_value / reduced.scale, part);
    }
    if (needs_norm && shared_ && steps) parameters_->block_norms(part, block_norms());
  }
  if (needs_norm && update.norm_stays && !shared_) {
    reduced.late_norm = parameters_->grad_norm_tensor() * reduced.scale;
  } else if (needs_norm) {
    if (shared_) wait_for_all();
    reduced.norm = reduced.scale * (shared_ ? parameters_->norm_of_blocks(block_norms())
                                            : parameters_->grad_norm());
  }
  return reduced;
}

// If memory is shared, each rank has summed its part, so the ranks have to tell each other.
// Otherwise all ranks have the same sums.
bool Replica::are_sums_finite() const {
  if (!shared_) return parameters_->all_finite();
  const bool own = parameters_->all_finite({communicator_.rank(), communicator_.size()});
  const auto votes = communicator_.vote(own ? 0 : 1);
  return std::ranges::all_of(votes, [](std::uint64_t vote) { return vote == 0; });
}

SummedGradients Replica::sums(double scale) {
  if (shared_) wait_for_all();  // each rank has summed its part
  SummedGradients gradients;
  for (const auto& buffer : parameters_->buffers()) {
    if (!buffer.is_trainable()) continue;
    for (const auto& slice : buffer.slices) {
      if (slice.used) gradients.push_back({slice.name, slice_view(slice, buffer.grads), scale});
    }
  }
  return gradients;
}

std::vector<torch::Tensor> Replica::make_means(double scale) {
  if (shared_) wait_for_all();  // each rank has summed its part
  std::vector<torch::Tensor> means;
  for (const auto& buffer : parameters_->buffers()) {
    if (!buffer.is_trainable()) continue;
    if (scale != 1.0 && (!shared_ || is_primary())) buffer.grads.mul_(scale);
    // Not slice.grad, whose version says whether backward() has reached the parameter.
    for (const auto& slice : buffer.slices) {
      if (slice.used) means.push_back(slice_view(slice, buffer.grads));
    }
  }
  return means;
}

void Replica::send_means() {
  if (shared_) {
    wait_for_all();
    return;
  }
  for (const auto& buffer : parameters_->buffers()) {
    if (buffer.is_trainable()) communicator_.broadcast(buffer.grads);
  }
}

void Replica::scale_sums(const torch::Tensor& factor) {
  const torch::NoGradGuard no_grad;
  for (const auto& buffer : parameters_->buffers()) {
    if (!buffer.is_trainable()) continue;
    buffer.grads.mul_(factor.to(buffer.grads.device()).to(buffer.grads.scalar_type()));
  }
}

void Replica::step(optim::Optimizer& optimizer, double scale) {
  const bool in_parts = shared_ && optimizer.steps_in_parts();
  if (!shared_ && range_.count() > 1) parameters_->bind_grads(0);
  if (shared_ && !in_parts) parameters_->bind_grads(0);
  if (!shared_ || in_parts || communicator_.is_primary()) {
    const Profiler::TimedScope scope(options_.profiler, Activity::kOptimizer);
    optim::StepOptions options{.grad_scale = scale, .part = own_part(optimizer)};
    if (in_parts) options.wait_for_parts = [this] { communicator_.synchronize(); };
    optimizer.step(options);
  } else {
    parameters_->mark_updated();
    parameters_->forget_use();
  }
  if (shared_) wait_for_all();
}

void Replica::skip() {
  parameters_->drop_grads(shared_ ? Part{communicator_.rank(), communicator_.size()} : Part{});
  if (shared_) wait_for_all();
}

// The part of the elements that this worker updates.
Part Replica::own_part(const optim::Optimizer& optimizer) const {
  const bool in_parts = shared_ && optimizer.steps_in_parts();
  return in_parts ? Part{communicator_.rank(), communicator_.size()} : Part{};
}

namespace {

// The norm of several gradients together. Those of a replica in shared memory do not stay on a
// device; the others are read then.
double norm_of(std::span<const Replica::Reduced> parts) {
  const auto value = [](const Replica::Reduced& part) {
    return part.norm ? *part.norm : part.late_norm.item<double>();
  };
  if (parts.size() == 1) return value(parts.front());
  double squares = 0;
  for (const auto& part : parts) squares += value(part) * value(part);
  return std::sqrt(squares);
}

// The same for norms that stay on a device.
torch::Tensor late_norm_of(std::span<const Replica::Reduced> parts) {
  if (parts.size() == 1) return parts.front().late_norm;
  torch::Tensor squares;
  for (const auto& part : parts) {
    const torch::Tensor square = part.late_norm.square();
    squares = squares.defined() ? squares + square.to(squares.device()) : square;
  }
  return squares.sqrt();
}

// Lets a function change the means. If a replica is in shared memory, rank 0 does this for all
// ranks. Otherwise every rank has all means and changes them in the same way.
void change_means(std::span<const TrainedReplica> all, std::span<Replica::Reduced> reduced,
                  const GradientFunction& change) {
  std::vector<torch::Tensor> means;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (auto& mean : all[i].replica.make_means(std::exchange(reduced[i].scale, 1.0))) {
      means.push_back(std::move(mean));
    }
  }
  const bool for_all = std::ranges::any_of(
      all, [](const TrainedReplica& item) { return item.replica.shares_memory(); });
  if (!for_all || all.front().replica.is_primary()) {
    const torch::NoGradGuard no_grad;
    change(means);
  }
  if (!for_all) return;
  for (const auto& item : all) item.replica.send_means();
}

void observe_sums(std::span<const TrainedReplica> all, std::span<const Replica::Reduced> reduced,
                  const std::function<void(const SummedGradients&)>& observe) {
  SummedGradients gradients;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (auto& gradient : all[i].replica.sums(reduced[i].scale)) {
      gradients.push_back(std::move(gradient));
    }
  }
  if (all.front().replica.is_primary()) {
    const torch::NoGradGuard no_grad;
    observe(gradients);
  }
  for (const auto& item : all) {
    if (item.replica.shares_memory()) item.replica.send_means();
  }
}

}  // namespace

UpdateResult update(std::span<const TrainedReplica> all, const Replica::Update& update) {
  c10::SmallVector<Replica::Reduced, 2> reduced;  // usually one, which needs no allocation
  Replica::Update each = update;
  for (const auto& [replica, optimizer] : all) {
    reduced.push_back(replica.reduce(optimizer, each));
    each.buffers = nullptr;  // once is enough
  }
  if (!std::ranges::all_of(reduced, &Replica::Reduced::finite)) {
    for (const auto& item : all) item.replica.skip();
    return {.skipped = true};
  }
  UpdateResult result;
  double clip = 1.0;
  const bool needs_norm = update.clip_norm || update.wants_norm;
  const bool is_late = std::ranges::all_of(
      reduced, [](const Replica::Reduced& item) { return item.late_norm.defined(); });
  if (needs_norm && is_late) {
    result.late_norm = late_norm_of(reduced);
  } else if (needs_norm) {
    result.norm = norm_of(reduced);
  }
  if (update.observe) observe_sums(all, reduced, update.observe);
  if (update.clip) change_means(all, reduced, update.clip);
  if (update.clip_norm && is_late) {
    const torch::Tensor factor = optim::clip_factor(result.late_norm, *update.clip_norm);
    for (const auto& item : all) item.replica.scale_sums(factor);
  } else if (update.clip_norm) {
    clip = optim::clip_scale({.norm = *result.norm, .max_norm = *update.clip_norm});
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].replica.step(all[i].optimizer, reduced[i].scale * clip);
  }
  return result;
}

std::span<double> Replica::block_norms() const {
  return {block_norms_.data_ptr<double>(), static_cast<std::size_t>(parameters_->num_blocks())};
}

// The ranks also agree on which parameters at least one of them has used.
void Replica::sum_gradients() {
  if (shared_) {
    for (std::size_t i = 0; i < parameters_->buffers().size(); ++i) {
      if (parameters_->buffers()[i].is_trainable()) parameters_->write_marks(i, first_set_);
    }
    wait_for_all();
  }
  const Profiler::TimedScope scope(options_.profiler, Activity::kReduce);
  if (shared_) {
    parameters_->read_marks(marks_);
    sum_own_part();
  } else if (options_.shards > 1) {
    exchange_sums();
  } else {
    round_gradients();
  }
}

// A single shard is a leaf without a sum, and a leaf is rounded, too.
void Replica::round_gradients() {
  for (const auto& buffer : parameters_->buffers()) {
    if (!buffer.is_trainable()) continue;
    if (!comm::is_rounded(options_.wire, buffer.grads.scalar_type())) continue;
    if (!buffer.grads.device().is_cpu()) {
      buffer.grads.copy_(buffer.grads.to(torch::kBFloat16));
      continue;
    }
    auto* const grads = buffer.grads.data_ptr<float>();
    compute::for_ranges({.size = buffer.grads.numel(), .grain = 4 * kPiece},
                        [&](std::int64_t first, std::int64_t last) {
                          comm::round_to_bf16(grads + first, grads + first, last - first);
                        });
  }
}

void Replica::exchange_sums() {
  const std::size_t terms = sums_.nodes().size();
  // Either all ranks use buckets or none does, even if one of them had no backward().
  if (overlaps()) {
    buckets_->finish();
  } else {
    for (std::size_t i = 0; i < parameters_->buffers().size(); ++i) {
      const auto& buffer = parameters_->buffers()[i];
      if (!buffer.is_trainable()) continue;
      if (communicator_.size() > 1) parameters_->write_marks(i, 0);
      communicator_.sum_parts(
          {.leaves = options_.shards,
           .tensors = {buffer.messages.begin(),
                       buffer.messages.begin() + static_cast<std::ptrdiff_t>(terms)},
           .nodes = sums_.nodes(),
           .wire = options_.wire},
          buffer.messages.front());
    }
  }
  // A single rank knows what it has used. Marks would have to be read from its device.
  const std::int64_t sum[] = {0};
  if (communicator_.size() > 1) parameters_->read_marks(sum);
  // The sum is in the first set, which the optimizer clears. The other sets are cleared here.
  for (const auto& buffer : parameters_->buffers()) {
    if (!buffer.is_trainable()) continue;
    for (std::size_t i = 1; i < terms; ++i) buffer.messages[i].zero_();
  }
}

// Sums the gradients directly from where the workers' backward() wrote them. It works on one piece
// at a time, so that the piece is still in the cache when the other sets are cleared.
void Replica::sum_own_part() {
  const Part part{communicator_.rank(), communicator_.size()};
  for (const auto& buffer : parameters_->buffers()) {
    if (!buffer.is_trainable()) continue;
    const ElementRange range = optim::range_of(part, buffer.grads.numel());
    const auto width = static_cast<std::int64_t>(buffer.grads.element_size());
    std::vector<const void*> inputs(terms_.size());
    for (std::int64_t begin = range.begin; begin < range.end; begin += kPiece) {
      const std::int64_t count = std::min(kPiece, range.end - begin);
      const auto at = [&](std::int64_t set) {
        return static_cast<std::byte*>(buffer.grad_sets[static_cast<std::size_t>(set)].data_ptr()) +
               begin * width;
      };
      for (std::size_t i = 0; i < terms_.size(); ++i) inputs[i] = at(terms_[i]);
      void* const outputs[] = {at(0)};
      tree_->reduce(inputs, outputs, count, buffer.grads.scalar_type(), comm::ReduceOp::kSum,
                    options_.wire);
      for (std::size_t i = 1; i < terms_.size(); ++i) {
        std::memset(at(terms_[i]), 0, static_cast<std::size_t>(count * width));
      }
    }
  }
}

void Replica::write_weights(std::span<const double> own) {
  double* const all = weights_.data_ptr<double>();
  if (!shared_) std::fill_n(all, options_.shards, 0.0);
  std::ranges::copy(own, all + range_.begin);
}

// Called after sum_gradients(), when all ranks know whether one of them has called mark_weights().
// If memory is shared, the weights are already there. Otherwise they are summed over the ranks: all
// ranks but one add zero to a shard's weight, so the sum is exact.
std::span<const double> Replica::gathered_weights() {
  if (!parameters_->mark()) return {};
  if (!shared_ && communicator_.size() > 1) communicator_.all_reduce(weights_);
  return {weights_.data_ptr<double>(), static_cast<std::size_t>(options_.shards)};
}

void Replica::finish() {
  if (!shared_) return;
  communicator_.synchronize();
  parameters_->move_to_own_memory();
  finished_ = true;
}

}  // namespace lockstep
