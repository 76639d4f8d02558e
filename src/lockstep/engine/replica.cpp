#include "lockstep/engine/replica.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/ranges.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/engine/gradient_buckets.h"

namespace lockstep {
namespace {

using optim::ElementRange;
using optim::FlatParameters;
using optim::Part;

std::string signature(const NamedTensors& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    text += fmt::format("{}\t{} [{}]{}{}\n", name, c10::toString(tensor.scalar_type()),
                        fmt::join(tensor.sizes(), ", "),
                        tensor.requires_grad() ? "" : " without gradient",
                        tensor.is_contiguous()
                            ? ""
                            : fmt::format(" with strides [{}]", fmt::join(tensor.strides(), ", ")));
  }
  return text;
}

// The first line in which two differ, for a message.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::size_t at = 0;
  while (true) {
    const auto line = [&](const std::string& text) {
      if (at >= text.size()) return std::string("nothing");
      std::string found = text.substr(at, text.find('\n', at) - at);
      std::ranges::replace(found, '\t', ' ');
      return found;
    };
    const std::string left = line(a);
    const std::string right = line(b);
    if (left != right) return {left, right};
    at = a.find('\n', at) + 1;
  }
}

}  // namespace

Replica::Replica(const NamedTensors& parameters, const NamedTensors& buffers,
                 comm::Communicator& communicator, const ReplicaOptions& options)
    : communicator_(communicator),
      options_(options),
      range_(comm::leaves_of({.rank = communicator.rank(), .size = communicator.size()},
                             options.shards)) {
  compare_models(parameters, buffers);
  buffers_ = std::make_unique<ModelBuffers>(buffers, communicator_, options_.shards);
  const bool alone = communicator_.size() == 1;
  optim::FlatOptions flat{.grad_sets = range_.count()};
  if (!alone && options_.share_memory && can_share(parameters)) {
    shared_ = true;
    flat.grad_sets = options_.shards;
    flat.owns_values = communicator_.is_primary();
    flat.memory = [this](std::int64_t count, const torch::TensorOptions& like) {
      const auto bytes = static_cast<std::size_t>(count) * like.dtype().itemsize();
      return communicator_.shared_memory(bytes)->view(c10::typeMetaToScalarType(like.dtype()));
    };
  }
  parameters_ = std::make_unique<FlatParameters>(parameters, flat);
  if (alone) return;
  if (shared_) {
    tree_ = std::make_unique<comm::Tree>(comm::leaf_nodes({0, options_.shards}), options_.shards);
    block_norms_ =
        communicator_.shared_memory(static_cast<std::size_t>(parameters_->num_blocks()) * 8)
            ->view(torch::kFloat64);
    communicator_.synchronize();
  } else {
    for (const auto& buffer : parameters_->buffers()) communicator_.broadcast(buffer.values);
    if (options_.overlap) {
      buckets_ = std::make_unique<GradientBuckets>(
          *parameters_, communicator_,
          BucketOptions{.leaves = options_.shards, .bytes = options_.bucket_bytes});
    }
  }
  buffers_->broadcast();
}

// After a failure, too: the model is the caller's again, in memory that no other process writes to.
Replica::~Replica() {
  buckets_.reset();
  if (shared_ && !finished_) parameters_->move_to_own_memory();
}

void Replica::compare_models(const NamedTensors& parameters, const NamedTensors& buffers) {
  if (communicator_.size() == 1) return;
  if (options_.shards < communicator_.size()) {
    throw ConfigError("shards: expected at least one a worker, got {} for {} workers",
                      options_.shards, communicator_.size());
  }
  const std::string mine = signature(parameters) + signature(buffers);
  const std::string first = communicator_.broadcast_bytes(mine, 0);
  // All learn it together, so that none goes on alone.
  const auto votes = communicator_.vote(mine == first ? 0 : 1);
  const auto other = std::ranges::find(votes, 1U);
  if (other == votes.end()) return;
  const int rank = static_cast<int>(other - votes.begin());
  const std::string theirs = communicator_.broadcast_bytes(mine, rank);
  const auto [left, right] = first_difference(first, theirs);
  throw CommError("the models of ranks 0 and {} differ: rank 0 has {}, rank {} has {}", rank, left,
                  rank, right);
}

bool Replica::can_share(const NamedTensors& parameters) const {
  const bool plain = std::ranges::all_of(parameters, [](const auto& item) {
    const torch::Tensor& tensor = item.second;
    return !tensor.defined() || !tensor.requires_grad() ||
           (tensor.device().is_cpu() &&
            (tensor.scalar_type() == torch::kFloat32 || tensor.scalar_type() == torch::kFloat64));
  });
  return plain && communicator_.shared_memory(1).has_value();
}

void Replica::begin_shard(int local, bool last) {
  if (shared_) {
    parameters_->bind_grads(range_.begin + local);
  } else if (range_.count() > 1) {
    parameters_->bind_grads(local);
  }
  buffers_->begin_shard(local);
  last_shard_ = last && local + 1 == range_.count();
}

// Not earlier: a user's own backward() in between is none of ours.
void Replica::before_backward() {
  if (last_shard_ && overlaps()) buckets_->arm();
}

void Replica::end_shard(int local) {
  parameters_->collect_grads();
  buffers_->end_shard(local);
}

bool Replica::overlaps() const {
  return buckets_ != nullptr && buckets_->worth_it();
}

void Replica::wait_for_all() {
  const Profiler::Scope scope(*options_.profiler, Phase::kWait);
  communicator_.synchronize();
}

std::optional<double> Replica::update(optim::Optimizer& optimizer, const Update& update) {
  const bool in_parts = shared_ && optimizer.steps_in_parts();
  const Part part = in_parts ? Part{communicator_.rank(), communicator_.size()} : Part{};
  buffers_->publish();
  sum_gradients();
  buffers_->take();
  // Where one worker steps for all, it needs the other parts' sums, too.
  if (shared_ && !in_parts) wait_for_all();
  const bool steps = !shared_ || in_parts || communicator_.is_primary();

  double scale = update.scale;
  std::optional<double> norm;
  {
    const Profiler::Scope scope(*options_.profiler, Phase::kOptimizer);
    if (update.clip_value && steps) parameters_->clip_grad_value(*update.clip_value / scale, part);
    if (update.clip_norm && shared_ && steps) parameters_->block_norms(part, block_norms());
  }
  if (update.clip_norm) {
    if (shared_) wait_for_all();
    norm =
        scale * (shared_ ? parameters_->norm_of_blocks(block_norms()) : parameters_->grad_norm());
    scale *= optim::clip_scale({.norm = *norm, .max_norm = *update.clip_norm});
  }
  if (!shared_ && range_.count() > 1) parameters_->bind_grads(0);
  if (shared_ && !in_parts) parameters_->bind_grads(0);
  if (steps) {
    const Profiler::Scope scope(*options_.profiler, Phase::kOptimizer);
    optimizer.step({.grad_scale = scale, .zero_grad = true, .part = part});
  } else {
    parameters_->mark_updated();
  }
  if (shared_) wait_for_all();
  return norm;
}

std::span<double> Replica::block_norms() const {
  return {block_norms_.data_ptr<double>(), static_cast<std::size_t>(parameters_->num_blocks())};
}

void Replica::sum_gradients() {
  if (shared_) wait_for_all();
  const Profiler::Scope scope(*options_.profiler, Phase::kReduce);
  if (shared_) {
    sum_own_part();
    return;
  }
  if (options_.shards == 1) return;
  // In buckets on all ranks or on none, though one of them may have had no backward().
  if (overlaps()) {
    buckets_->finish();
  } else {
    for (const auto& buffer : parameters_->buffers()) {
      communicator_.sum_parts({.leaves = options_.shards, .tensors = buffer.grad_sets},
                              buffer.grads);
    }
  }
  // The sum is in the first set, which the optimizer clears; the others are done with.
  for (const auto& buffer : parameters_->buffers()) {
    for (std::size_t i = 1; i < buffer.grad_sets.size(); ++i) buffer.grad_sets[i].zero_();
  }
}

// Straight from where the workers' backward() left them, a piece at a time: it is still in the
// cache when the other sets are cleared.
void Replica::sum_own_part() {
  constexpr std::int64_t kPiece = 16384;
  const Part part{communicator_.rank(), communicator_.size()};
  for (const auto& buffer : parameters_->buffers()) {
    const ElementRange range = optim::range_of(part, buffer.grads.numel());
    const auto width = static_cast<std::int64_t>(buffer.grads.element_size());
    std::vector<const void*> inputs(buffer.grad_sets.size());
    for (std::int64_t begin = range.begin; begin < range.end; begin += kPiece) {
      const std::int64_t count = std::min(kPiece, range.end - begin);
      const auto at = [&](std::size_t set) {
        return static_cast<std::byte*>(buffer.grad_sets[set].data_ptr()) + begin * width;
      };
      for (std::size_t set = 0; set < inputs.size(); ++set) inputs[set] = at(set);
      void* const outputs[] = {at(0)};
      tree_->reduce(inputs, outputs, count, buffer.grads.scalar_type(), comm::ReduceOp::kSum);
      for (std::size_t set = 1; set < inputs.size(); ++set) {
        std::memset(at(set), 0, static_cast<std::size_t>(count * width));
      }
    }
  }
}

double Replica::sum_over_shards(std::span<const double> own) {
  // Ranks have so many shards at most, one after the other by their numbers.
  const auto most =
      static_cast<std::size_t>((options_.shards + communicator_.size() - 1) / communicator_.size());
  std::vector<std::vector<double>> of_rank(static_cast<std::size_t>(communicator_.size()));
  for (std::size_t local = 0; local < most; ++local) {
    const double mine = local < own.size() ? own[local] : 0.0;
    const auto votes = communicator_.vote(std::bit_cast<std::uint64_t>(mine));
    for (std::size_t rank = 0; rank < votes.size(); ++rank) {
      of_rank[rank].push_back(std::bit_cast<double>(votes[rank]));
    }
  }
  double sum = 0;
  for (const auto& numbers : of_rank) {
    for (const double number : numbers) sum += number;
  }
  return sum;
}

void Replica::finish() {
  if (!shared_) return;
  communicator_.synchronize();
  parameters_->move_to_own_memory();
  finished_ = true;
}

}  // namespace lockstep
