#include "lockstep/train/device_copies.h"

#include <chrono>
#include <functional>
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

// The event is polled, because c10::Event of older LibTorch has no function that waits, and because
// such a wait could not be ended if another rank fails.
void wait_for(const c10::Event& event, const std::function<void()>& check) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kCheckInterval(20);
  Clock::time_point checked = Clock::now();
  for (int turns = 0; !event.query(); ++turns) {
    if (turns < 1000) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    if (Clock::now() - checked < kCheckInterval) continue;
    check();
    checked = Clock::now();
  }
}

class StreamTensor final : public LateTensor {
 public:
  StreamTensor(const torch::Tensor& tensor, std::function<void()> check)
      : check_(std::move(check)), done_(tensor.device().type()) {
    const torch::NoGradGuard no_grad;
    // The copy from the device to ordinary memory would wait.
    host_ = torch::empty(
        tensor.sizes(), torch::dtype(tensor.scalar_type()).device(torch::kCPU).pinned_memory(true));
    host_.copy_(tensor.detach(), /*non_blocking=*/true);
    done_.record(current_stream(tensor.device()));
  }

  const torch::Tensor& get() override {
    wait_for(done_, check_);
    return host_;
  }

 private:
  std::function<void()> check_;
  torch::Tensor host_;
  c10::Event done_;
};

// A tensor of the CPU in a run on a GPU: a loss that the user's code has moved, for example.
class HostTensor final : public LateTensor {
 public:
  explicit HostTensor(const torch::Tensor& tensor) : values_(tensor.detach().clone()) {}

  const torch::Tensor& get() override { return values_; }

 private:
  torch::Tensor values_;
};

// The memory of a sparse tensor is that of its parts.
void use_in(const c10::Stream& stream, const torch::Tensor& tensor) {
  switch (tensor.layout()) {
    case torch::kSparse:
      tensor._indices().record_stream(stream);
      tensor._values().record_stream(stream);
      return;
    case at::kSparseCsr:
    case at::kSparseBsr:
      tensor.crow_indices().record_stream(stream);
      tensor.col_indices().record_stream(stream);
      tensor.values().record_stream(stream);
      return;
    case at::kSparseCsc:
    case at::kSparseBsc:
      tensor.ccol_indices().record_stream(stream);
      tensor.row_indices().record_stream(stream);
      tensor.values().record_stream(stream);
      return;
    default:
      tensor.record_stream(stream);
  }
}

// The batch's memory belongs to the stream that copied it. LibTorch must not use it again for that
// stream before the other stream has done what it does with the batch.
void use_in(const c10::Stream& stream, const Batch& batch) {
  for (const auto& [key, tensor] : batch) use_in(stream, tensor);
  for (const auto& [key, list] : batch.lists()) {
    for (const torch::Tensor& tensor : list) use_in(stream, tensor);
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
  StreamCopies(const torch::Device& device, std::function<void()> check)
      : check_(std::move(check)),
        stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, false)) {
  }

  std::unique_ptr<LateTensor> read(const torch::Tensor& tensor) override {
    if (tensor.device().is_cpu()) return std::make_unique<HostTensor>(tensor);
    return std::make_unique<StreamTensor>(tensor, check_);
  }

  std::unique_ptr<ArrivingBatch> send(const Batch& batch) override {
    return std::make_unique<StreamBatch>(batch, stream_);
  }

 private:
  std::function<void()> check_;
  c10::Stream stream_;
};

}  // namespace

std::unique_ptr<DeviceCopies> make_device_copies(const torch::Device& device,
                                                 std::function<void()> check) {
  if (device.is_cpu()) return nullptr;
  return std::make_unique<StreamCopies>(device, std::move(check));
}

}  // namespace lockstep
