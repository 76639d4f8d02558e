#include "lockstep/compute/autocast.h"

#include <ATen/autocast_mode.h>
#include <torch/version.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

namespace autocast = at::autocast;
using torch::DeviceType;
using torch::ScalarType;

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)

bool has_autocast(DeviceType device) {
  return autocast::is_autocast_available(device);
}
bool is_autocast_on(DeviceType device) {
  return autocast::is_autocast_enabled(device);
}
void turn_autocast(DeviceType device, bool on) {
  autocast::set_autocast_enabled(device, on);
}
ScalarType autocast_type(DeviceType device) {
  return autocast::get_autocast_dtype(device);
}
void set_autocast_type(DeviceType device, ScalarType type) {
  autocast::set_autocast_dtype(device, type);
}

#else  // one function for each kind of device

bool has_autocast(DeviceType device) {
  return device == DeviceType::CPU || device == DeviceType::CUDA;
}
bool is_autocast_on(DeviceType device) {
  return device == DeviceType::CPU ? autocast::is_cpu_enabled() : autocast::is_enabled();
}
void turn_autocast(DeviceType device, bool on) {
  device == DeviceType::CPU ? autocast::set_cpu_enabled(on) : autocast::set_enabled(on);
}
ScalarType autocast_type(DeviceType device) {
  return device == DeviceType::CPU ? autocast::get_autocast_cpu_dtype()
                                   : autocast::get_autocast_gpu_dtype();
}
void set_autocast_type(DeviceType device, ScalarType type) {
  device == DeviceType::CPU ? autocast::set_autocast_cpu_dtype(type)
                            : autocast::set_autocast_gpu_dtype(type);
}

#endif

ScalarType scalar_type(Precision precision) {
  return precision == Precision::kBf16 ? torch::kBFloat16 : torch::kHalf;
}

// Some versions refuse a type, others accept it and then have no matrix product for it.
bool takes_type(DeviceType device, ScalarType type) {
  constexpr bool cpu_has_half =
      TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3);
  if (device == DeviceType::CPU && type == torch::kHalf && !cpu_has_half) return false;
  const ScalarType before = autocast_type(device);
  try {
    set_autocast_type(device, type);
  } catch (const c10::Error&) {
    return false;
  }
  set_autocast_type(device, before);
  return true;
}

}  // namespace

void check_precision(Precision precision, const torch::Device& device) {
  if (!precision.is_mixed()) return;
  if (!has_autocast(device.type())) {
    throw ConfigError("precision: {}: LibTorch {} has no autocast on the device {}; use fp32",
                      precision.name(), TORCH_VERSION, device.str());
  }
  if (takes_type(device.type(), scalar_type(precision))) return;
  throw ConfigError(
      "precision: {}: LibTorch {} cannot compute in it on the {}{}", precision.name(),
      TORCH_VERSION, device.is_cpu() ? "CPU" : "device " + device.str(),
      precision == Precision::kFp16
          ? "; use bf16, which needs no gradient scaling, or LibTorch 2.3 or newer, or a GPU"
          : "; use fp32");
}

AutocastScope::AutocastScope(Precision precision, const torch::Device& device) {
  if (!precision.is_mixed()) return;
  check_precision(precision, device);
  const DeviceType type = device.type();
  before_ = Before{.device = type, .type = autocast_type(type), .enabled = is_autocast_on(type)};
  set_autocast_type(type, scalar_type(precision));
  turn_autocast(type, true);
  autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!before_) return;
  // The copies of weights that autocast keeps are of no use after an update.
  if (autocast::decrement_nesting() == 0) autocast::clear_cache();
  turn_autocast(before_->device, before_->enabled);
  set_autocast_type(before_->device, before_->type);
}

torch::Tensor widened(const torch::Tensor& tensor) {
  const bool has_16_bits = tensor.defined() && (tensor.scalar_type() == torch::kBFloat16 ||
                                                tensor.scalar_type() == torch::kHalf);
  return has_16_bits ? tensor.to(torch::kFloat32) : tensor;
}

}  // namespace lockstep
