// NCCL's functions are called directly, without c10d::ProcessGroupNCCL; why is in
// docs/decisions/nccl.md.
#include "lockstep/comm/nccl.h"

#include <cstring>
#include <exception>
#include <optional>

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

// Has no name of the collective, as errors of LibTorch: TwoPlanes adds it.
class NcclError : public std::exception {
 public:
  explicit NcclError(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

class CudaPoint final : public StreamPoint {
 public:
  explicit CudaPoint(const c10::cuda::CUDAStream& stream) { event_.record(stream); }

  bool reached() override { return event_.query(); }
  void block(const c10::cuda::CUDAStream& stream) { event_.block(stream); }

 private:
  at::cuda::CUDAEvent event_;
};

// How NCCL adds. Nothing: it cannot add numbers of this type.
std::optional<ncclDataType_t> number_type(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return ncclFloat32;
    case torch::kFloat64:
      return ncclFloat64;
    case torch::kFloat16:
      return ncclFloat16;
    case torch::kBFloat16:
      return ncclBfloat16;
    case torch::kInt8:
      return ncclInt8;
    case torch::kUInt8:
      return ncclUint8;
    case torch::kInt32:
      return ncclInt32;
    case torch::kInt64:
      return ncclInt64;
    default:
      return std::nullopt;
  }
}

ncclRedOp_t operator_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return ncclSum;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kProduct:
      return ncclProd;
  }
  return ncclSum;
}

class NcclPlane final : public DevicePlane {
 public:
  explicit NcclPlane(const PlaneStart& options)
      : rank_(options.rank),
        size_(options.size),
        poll_(options.poll),
        device_(options.device),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, options.device.index())) {
    if (options.id.size() != sizeof id_) {
      throw NcclError("the id of the group is damaged");
    }
    std::memcpy(&id_, options.id.data(), sizeof id_);
  }
  ~NcclPlane() override { abort(); }
  NcclPlane(const NcclPlane&) = delete;
  NcclPlane& operator=(const NcclPlane&) = delete;

  void connect() override {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // so that every wait can be ended
    const c10::cuda::CUDAGuard guard(device_);
    settle(ncclCommInitRankConfig(&comm_, size_, id_, rank_, &config));
  }

  std::shared_ptr<StreamPoint> mark() override {
    const c10::cuda::CUDAGuard guard(device_);
    return std::make_shared<CudaPoint>(c10::cuda::getCurrentCUDAStream(device_.index()));
  }

  std::shared_ptr<StreamPoint> run(const std::shared_ptr<StreamPoint>& after,
                                   std::function<void()> work) override {
    const c10::cuda::CUDAStreamGuard guard(stream_);  // sets the device, too
    if (after != nullptr) static_cast<CudaPoint&>(*after).block(stream_);
    work();
    return std::make_shared<CudaPoint>(stream_);
  }

  void exchange(const std::vector<PeerTensor>& sends,
                const std::vector<PeerTensor>& receives) override {
    check_result(ncclGroupStart());
    for (const auto& [rank, tensor] : sends) {
      add_to_group(ncclSend(tensor.data_ptr(), tensor.nbytes(), ncclUint8, rank, comm_, stream_));
    }
    for (const auto& [rank, tensor] : receives) {
      add_to_group(ncclRecv(tensor.data_ptr(), tensor.nbytes(), ncclUint8, rank, comm_, stream_));
    }
    settle(ncclGroupEnd());
  }

  void all_gather(const torch::Tensor& mine, const torch::Tensor& all) override {
    settle(
        ncclAllGather(mine.data_ptr(), all.data_ptr(), mine.nbytes(), ncclUint8, comm_, stream_));
  }

  void broadcast(const torch::Tensor& tensor, int root) override {
    settle(ncclBroadcast(tensor.data_ptr(), tensor.data_ptr(), tensor.nbytes(), ncclUint8, root,
                         comm_, stream_));
  }

  bool can_reduce(torch::ScalarType type) const override { return number_type(type).has_value(); }

  void all_reduce(const torch::Tensor& tensor, ReduceOp op) override {
    settle(ncclAllReduce(
        tensor.data_ptr(), tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
        number_type(tensor.scalar_type()).value(), operator_of(op), comm_, stream_));
  }

  void check() override {
    if (comm_ != nullptr) check_result(state());
  }

  void abort() noexcept override {
    if (comm_ != nullptr) ncclCommAbort(comm_);
    comm_ = nullptr;
  }

 private:
  // An error, "in progress" or success, of what was given to NCCL before.
  ncclResult_t state() const {
    ncclResult_t result = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
    return asked == ncclSuccess ? result : asked;
  }

  void check_result(ncclResult_t result) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    const char* const last = ncclGetLastError(comm_);
    std::string text = ncclGetErrorString(result);
    if (last != nullptr && *last != '\0') text += std::string(": ") + last;
    throw NcclError(text + "; NCCL_DEBUG=INFO makes NCCL say more");
  }

  // A group that has begun must be ended, also after an error.
  void add_to_group(ncclResult_t result) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    ncclGroupEnd();
    check_result(result);
  }

  // Work is in the stream only when NCCL is no longer "in progress": it may connect ranks first.
  void settle(ncclResult_t result) {
    check_result(result);
    if (result == ncclSuccess) return;
    while (true) {
      const ncclResult_t now = state();
      check_result(now);
      if (now == ncclSuccess) return;
      poll_();
    }
  }

  int rank_;
  int size_;
  ncclUniqueId id_{};
  std::function<void()> poll_;
  torch::Device device_;
  c10::cuda::CUDAStream stream_;
  ncclComm_t comm_ = nullptr;
};

class NcclPlanes final : public PlaneFactory {
 public:
  std::string name() const override { return "nccl"; }
  bool takes(const torch::Device& device) const override { return device.is_cuda(); }

  std::string identity(const torch::Device& device) const override {
    const auto count = static_cast<int>(c10::cuda::device_count());
    if (device.index() >= count) {
      throw ConfigError("device: {} is not there: this process sees {} GPUs", device.str(), count);
    }
    const cudaUUID_t& uuid = at::cuda::getDeviceProperties(device.index())->uuid;
    std::string text = "GPU-";
    for (const char byte : uuid.bytes) {
      text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    }
    return text;
  }

  std::string make_id() const override {
    ncclUniqueId id{};
    if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) {
      throw NcclError(ncclGetErrorString(result));
    }
    return {reinterpret_cast<const char*>(&id), sizeof id};
  }

  std::unique_ptr<DevicePlane> make(const PlaneStart& options) const override {
    return std::make_unique<NcclPlane>(options);
  }
};

}  // namespace

const PlaneFactory* nccl_planes() {
  static const NcclPlanes planes;
  return &planes;
}

}  // namespace lockstep::comm
