#include "lockstep/engine/model_buffers.h"

#include <cstring>

#include <torch/utils.h>

namespace lockstep {

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
    size_ += tensor.nbytes();
  }
  if (tensors_.empty() || shards_ == 1) return;
  if (local_shards_ > 1) {
    own_.assign(static_cast<std::size_t>(local_shards_), std::vector<std::byte>(size_));
  }
  if (communicator_.size() > 1 && options.ranks_meet) {
    if (auto memory = communicator_.shared_memory(size_)) published_ = *memory;
  }
}

void ModelBuffers::copy_out(std::byte* bytes) const {
  torch::NoGradGuard no_grad;
  for (const auto& tensor : tensors_) {
    const torch::Tensor plain = tensor.cpu().contiguous();
    if (plain.numel() == 0) continue;  // memcpy() must not get its null pointer
    std::memcpy(bytes, plain.data_ptr(), plain.nbytes());
    bytes += plain.nbytes();
  }
}

void ModelBuffers::copy_in(const std::byte* bytes) {
  torch::NoGradGuard no_grad;
  for (auto& tensor : tensors_) {
    const torch::Tensor saved = torch::from_blob(const_cast<std::byte*>(bytes), tensor.sizes(),
                                                 torch::dtype(tensor.scalar_type()));
    tensor.copy_(saved);
    bytes += tensor.nbytes();
  }
}

void ModelBuffers::begin_shard(int local) {
  if (own_.empty()) return;
  if (fresh_) {
    for (auto& bytes : own_) copy_out(bytes.data());
    fresh_ = false;
  }
  copy_in(own_[static_cast<std::size_t>(local)].data());
}

void ModelBuffers::end_shard(int local) {
  if (!own_.empty()) copy_out(own_[static_cast<std::size_t>(local)].data());
}

void ModelBuffers::restore_first() {
  if (own_.empty() || fresh_) return;
  copy_in(own_.front().data());
  fresh_ = true;
}

void ModelBuffers::settle() {
  restore_first();
  broadcast();
}

void ModelBuffers::publish() {
  if (tensors_.empty() || shards_ == 1) return;
  restore_first();
  if (communicator_.is_primary() && published_.defined()) {
    copy_out(static_cast<std::byte*>(published_.data_ptr()));
  }
}

void ModelBuffers::take() {
  if (tensors_.empty() || shards_ == 1 || communicator_.size() == 1) return;
  if (!published_.defined()) {
    broadcast();
  } else if (!communicator_.is_primary()) {
    copy_in(static_cast<const std::byte*>(published_.data_ptr()));
  }
}

void ModelBuffers::broadcast() {
  if (tensors_.empty() || communicator_.size() == 1) return;
  std::vector<std::byte> bytes(size_);
  torch::Tensor flat =
      torch::from_blob(bytes.data(), {static_cast<std::int64_t>(size_)}, torch::kUInt8);
  if (communicator_.is_primary()) copy_out(bytes.data());
  communicator_.broadcast(flat, 0);
  if (!communicator_.is_primary()) copy_in(bytes.data());
}

}  // namespace lockstep
