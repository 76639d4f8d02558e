#include "lockstep/engine/replicas.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/ranges.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The order of a tensor's values in memory, if it is not the usual one and a copy would have it,
// too. A tensor with gaps, such as a slice, becomes contiguous when its run trains it, and a worker
// that is made anew still has the slice.
std::string describe_order(const torch::Tensor& tensor) {
  if (tensor.is_contiguous() || !tensor.is_non_overlapping_and_dense()) return "";
  return fmt::format(" with strides [{}]", fmt::join(tensor.strides(), ", "));
}

std::string signature(const NamedTensors& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    text += fmt::format("{}\t{} [{}]{}{}\n", name, c10::toString(tensor.scalar_type()),
                        fmt::join(tensor.sizes(), ", "),
                        tensor.requires_grad() ? "" : " without gradient", describe_order(tensor));
  }
  return text;
}

// The first line in which two signatures differ, for a message.
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

// Throws CommError, which names the tensor, if the tensors of two ranks differ in one.
void compare(const ReplicaTensors& tensors, comm::Communicator& communicator, int shards) {
  if (communicator.size() == 1) return;
  if (shards < communicator.size()) {
    throw ConfigError("shards: expected at least one per worker, got {} for {} workers", shards,
                      communicator.size());
  }
  std::string mine;
  for (const auto& group : tensors.trained) mine += signature(group.parameters);
  mine += signature(tensors.untrained) + signature(tensors.buffers);
  const std::string first = communicator.broadcast_bytes(mine, 0);
  // All ranks learn of a difference together, so that none continues without the others.
  const auto votes = communicator.vote(mine == first ? 0 : 1);
  const auto other = std::ranges::find(votes, 1U);
  if (other == votes.end()) return;
  const int rank = static_cast<int>(other - votes.begin());
  const std::string theirs = communicator.broadcast_bytes(mine, rank);
  const auto [left, right] = first_difference(first, theirs);
  throw CommError("the models of ranks 0 and {} differ: rank 0 has {}, rank {} has {}", rank, left,
                  rank, right);
}

}  // namespace

Replicas::Replicas(const ReplicaTensors& tensors, comm::Communicator& communicator,
                   const ReplicaOptions& options)
    : communicator_(communicator) {
  compare(tensors, communicator_, options.shards);
  for (const auto& group : tensors.trained) {
    ReplicaOptions own = options;
    own.overlap = options.overlap && group.own_backward;
    trained_.push_back(std::make_unique<Replica>(group.parameters, communicator_, own));
  }
  if (!tensors.untrained.empty() && communicator_.size() > 1) {
    ReplicaOptions own = options;
    own.share_memory = false;
    own.overlap = false;
    untrained_ = std::make_unique<Replica>(tensors.untrained, communicator_, own);
  }
  const bool all_meet =
      std::ranges::all_of(trained_, [](const auto& item) { return item->shares_memory(); });
  buffers_ = std::make_unique<ModelBuffers>(
      tensors.buffers, communicator_,
      ModelBuffersOptions{.shards = options.shards, .ranks_meet = all_meet});
  buffers_->broadcast();
}

void Replicas::send_weights() {
  for (const auto& replica : trained_) replica->send();
  if (untrained_ != nullptr) untrained_->send();
  buffers_->broadcast();
}

void Replicas::change(const std::function<void()>& change) {
  buffers_->settle();
  communicator_.barrier();
  const bool any_shared =
      std::ranges::any_of(trained_, [](const auto& item) { return item->shares_memory(); });
  if (!any_shared || communicator_.is_primary()) {
    const torch::NoGradGuard no_grad;
    change();
  }
  communicator_.barrier();
  send_weights();
}

void Replicas::send(std::span<const std::unique_ptr<optim::Optimizer>> optimizers) {
  send_weights();
  for (std::size_t i = 0; i < trained_.size(); ++i) trained_[i]->send(*optimizers[i]);
}

void Replicas::finish() {
  for (const auto& replica : trained_) replica->finish();
}

}  // namespace lockstep
