#include "lockstep/train/device_copies.h"

#include <chrono>
#include <thread>
#include <utility>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

c10::Stream current_stream(const torch::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// The event is polled, because c10::Event of older LibTorch has no function that waits.
void wait_for(const c10::Event& event) {
  for (int turns = 0; !event.query(); ++turns) {
    if (turns < 1000) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

class StreamTensor final : public LateTensor {
 public:
  explicit StreamTensor(const torch::Tensor& tensor) : done_(tensor.device().type()) {
    const torch::NoGradGuard no_grad;
    // The copy from the device to ordinary memory would wait.
    host_ = torch::empty(
        tensor.sizes(), torch::dtype(tensor.scalar_type()).device(torch::kCPU).pinned_memory(true));
    host_.copy_(tensor.detach(), /*non_blocking=*/true);
    done_.record(current_stream(tensor.device()));
  }

  const torch::Tensor& get() override {
    wait_for(done_);
    return host_;
  }

 private:
  torch::Tensor host_;
  c10::Event done_;
};

// The batch's memory belongs to the stream that copied it. LibTorch must not use it again for that
// stream before the other stream has done what it does with the batch.
void use_in(const c10::Stream& stream, const Batch& batch) {
  for (const auto& [key, tensor] : batch) tensor.record_stream(stream);
  for (const auto& [key, list] : batch.lists()) {
    for (const torch::Tensor& tensor : list) tensor.record_stream(stream);
  }
  for (const auto& [key, nested] : batch.nested_batches()) use_in(stream, nested);
}

class StreamBatch final : public ArrivingBatch {
 public:
  StreamBatch(const Batch& batch, const c10::Stream& stream)
      : device_(stream.device()), done_(stream.device_type()) {
    const c10::StreamGuard guard(stream);
    batch_ = batch.to(device_);
    done_.record(stream);
  }

  Batch take() override {
    const c10::Stream stream = current_stream(device_);
    done_.block(stream);
    use_in(stream, batch_);
    return std::move(batch_);
  }

 private:
  torch::Device device_;
  Batch batch_;
  c10::Event done_;
};

class StreamCopies final : public DeviceCopies {
 public:
  explicit StreamCopies(const torch::Device& device)
      : stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, false)) {
  }

  std::unique_ptr<LateTensor> read(const torch::Tensor& tensor) override {
    return std::make_unique<StreamTensor>(tensor);
  }

  std::unique_ptr<ArrivingBatch> send(const Batch& batch) override {
    return std::make_unique<StreamBatch>(batch, stream_);
  }

 private:
  c10::Stream stream_;
};

}  // namespace

std::unique_ptr<DeviceCopies> make_device_copies(const torch::Device& device) {
  if (device.is_cpu()) return nullptr;
  return std::make_unique<StreamCopies>(device);
}

}  // namespace lockstep
