#include "lockstep/engine/model_buffers.h"

#include <algorithm>

#include <torch/utils.h>

namespace lockstep {
namespace {

// A view of bytes as numbers of any type begins at a multiple of their size.
std::int64_t aligned(std::int64_t bytes) {
  constexpr std::int64_t kAlignment = 16;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

ModelBuffers::ModelBuffers(const NamedTensors& buffers, comm::Communicator& communicator,
                           const ModelBuffersOptions& options)
    : communicator_(communicator),
      local_shards_(comm::leaves_of({.rank = communicator.rank(), .size = communicator.size()},
                                    options.shards)
                        .count()),
      shards_(options.shards) {
  for (const auto& [name, tensor] : buffers) {
    if (tensor.numel() == 0) continue;
    tensors_.push_back(tensor);
    offsets_.push_back(size_);
    size_ += aligned(static_cast<std::int64_t>(tensor.nbytes()));
  }
  if (tensors_.empty()) return;
  const torch::Device first = tensors_.front().device();
  const bool alike = std::ranges::all_of(
      tensors_, [&](const torch::Tensor& tensor) { return tensor.device() == first; });
  if (alike) device_ = first;
  if (shards_ == 1) return;
  for (int i = 0; local_shards_ > 1 && i < local_shards_; ++i) own_.push_back(make_values());
  if (communicator_.size() > 1 && options.ranks_meet) {
    if (auto memory = communicator_.shared_memory(static_cast<std::size_t>(size_))) {
      published_ = values_in(*memory);
    }
  }
}

ModelBuffers::Values ModelBuffers::values_in(const torch::Tensor& bytes) const {
  Values values{.bytes = bytes};
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    values.views.push_back(
        bytes.narrow(0, offsets_[i], static_cast<std::int64_t>(tensors_[i].nbytes()))
            .view(tensors_[i].scalar_type())
            .view(tensors_[i].sizes()));
  }
  return values;
}

ModelBuffers::Values ModelBuffers::make_values() const {
  return values_in(torch::zeros({size_}, torch::dtype(torch::kUInt8).device(device_)));
}

void ModelBuffers::copy_out(const Values& to) const {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) to.views[i].copy_(tensors_[i]);
}

void ModelBuffers::copy_in(const Values& from) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].copy_(from.views[i]);
}

void ModelBuffers::begin_shard(int local) {
  if (own_.empty()) return;
  if (fresh_) {
    for (const Values& values : own_) copy_out(values);
    fresh_ = false;
  }
  copy_in(own_[static_cast<std::size_t>(local)]);
}

void ModelBuffers::end_shard(int local) {
  if (!own_.empty()) copy_out(own_[static_cast<std::size_t>(local)]);
}

void ModelBuffers::restore_first() {
  if (own_.empty() || fresh_) return;
  copy_in(own_.front());
  fresh_ = true;
}

void ModelBuffers::settle() {
  restore_first();
  broadcast();
}

void ModelBuffers::publish() {
  if (tensors_.empty() || shards_ == 1) return;
  restore_first();
  if (communicator_.is_primary() && published_.bytes.defined()) copy_out(published_);
}

void ModelBuffers::take() {
  if (tensors_.empty() || shards_ == 1 || communicator_.size() == 1) return;
  if (!published_.bytes.defined()) {
    broadcast();
  } else if (!communicator_.is_primary()) {
    copy_in(published_);
  }
}

void ModelBuffers::broadcast() {
  if (tensors_.empty() || communicator_.size() == 1) return;
  if (!sent_.bytes.defined()) sent_ = make_values();
  if (communicator_.is_primary()) copy_out(sent_);
  communicator_.broadcast(sent_.bytes, 0);
  if (!communicator_.is_primary()) copy_in(sent_);
}

}  // namespace lockstep
