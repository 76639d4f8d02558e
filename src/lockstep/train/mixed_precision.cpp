#include "lockstep/train/mixed_precision.h"

#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/compute/autocast.h"
#include "lockstep/compute/cpu_instructions.h"
#include "lockstep/train/options.h"
#include "lockstep/train/state.h"

namespace lockstep {
namespace {

bool has_16_bits(const torch::Tensor& tensor) {
  return tensor.defined() &&
         (tensor.scalar_type() == torch::kBFloat16 || tensor.scalar_type() == torch::kHalf);
}

}  // namespace

Precision precision_of(const TrainOptions& options, const torch::Device& device) {
  Precision precision = options.precision;
  if (options.fp16) {
    if (precision == Precision::kBf16) {
      throw ConfigError("fp16: precision is bf16, which contradicts it; leave one of the two out");
    }
    precision = Precision::kFp16;
  } else if (options.amp && !precision.is_mixed()) {
    precision = device.is_cpu() ? Precision::kBf16 : Precision::kFp16;
  }
  check_precision(precision, device);
  return precision;
}

std::optional<optim::GradScalerOptions> scaler_of(const TrainOptions& options,
                                                  Precision precision) {
  if (options.grad_scaler && !options.grad_scaler->enabled) return std::nullopt;
  if (options.grad_scaler) return options.grad_scaler;
  if (precision == Precision::kFp16) return optim::GradScalerOptions();
  return std::nullopt;
}

void warn_of_slow_precision(Precision precision, const torch::Device& device) {
  if (!precision.is_mixed() || !device.is_cpu()) return;
  const std::string reason = compute::why_slow(precision, compute::read_cpuinfo());
  if (!reason.empty()) warn_once(reason);
}

std::optional<Precision> saved_precision(const StateDict& snapshot) {
  if (!snapshot.contains("run") || snapshot.at("run").get_if<StateDict>() == nullptr) {
    return std::nullopt;
  }
  const auto run = snapshot.get<StateDict>("run");
  if (!run.contains("precision")) return std::nullopt;  // of an older version
  return Precision(run.get<std::string>("precision"));
}

void widen(Batch& batch) {
  std::vector<std::string> keys;
  for (const auto& [key, tensor] : batch) {
    if (has_16_bits(tensor)) keys.push_back(key);
  }
  for (const std::string& key : keys) batch.set(key, widened(batch[key]));
  if (!batch.lists().empty()) {
    for (const auto& [key, list] : std::vector(batch.lists())) {
      Batch::List wide;
      for (const torch::Tensor& tensor : list) wide.push_back(widened(tensor));
      batch.set(key, std::move(wide));
    }
  }
  if (batch.nested_batches().empty()) return;
  for (const auto& [key, nested] : std::vector(batch.nested_batches())) {
    Batch wide = nested;
    widen(wide);
    batch.set(key, std::move(wide));
  }
}

void widen(ShardState& shard, const std::string& loss_key) {
  const torch::Tensor* const loss = shard.batch.find(loss_key);
  const bool is_said =
      loss != nullptr && shard.said.loss.defined() && loss->is_same(shard.said.loss);
  widen(shard.batch);
  if (is_said) shard.said.loss = shard.batch[loss_key];
}

}  // namespace lockstep
