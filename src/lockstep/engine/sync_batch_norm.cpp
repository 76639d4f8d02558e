#include "lockstep/engine/sync_batch_norm.h"

#include <memory>
#include <utility>
#include <vector>

#include <ATen/ops/batch_norm_native.h>
#include <ATen/ops/instance_norm_native.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/compute/thread_state.h"
#include "lockstep/engine/batch_norm_statistics.h"

namespace lockstep {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using OptionalTensor = c10::optional<Tensor>;

// The communicator of the SyncBatchNormScope of this thread. It is global because LibTorch calls
// the functions below for every batch norm, and gives them nothing of ours.
thread_local comm::Communicator* current = nullptr;

// at::instance_norm calls at::batch_norm, with the channels of every sample as separate channels.
// That call must not be synchronised. It is global because LibTorch is between the two calls.
thread_local bool in_instance_norm = false;

// All dimensions except the one of the channels.
std::vector<std::int64_t> other_dims(const Tensor& input) {
  std::vector<std::int64_t> dims{0};
  for (std::int64_t dim = 2; dim < input.dim(); ++dim) dims.push_back(dim);
  return dims;
}

// Reshapes one value per channel, so that it can be combined with the input.
Tensor along_channels(const Tensor& values, const Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = values.numel();
  return values.to(input.scalar_type()).view(shape);
}

// The type in which LibTorch's own batch norm computes: float for inputs of 16 bits.
Tensor in_full(const Tensor& tensor) {
  const bool has_16_bits =
      tensor.scalar_type() == torch::kBFloat16 || tensor.scalar_type() == torch::kHalf;
  return has_16_bits ? tensor.to(torch::kFloat32) : tensor;
}

// All are of type double, and on the device of the input, so that the host need not wait for them.
struct Statistics {
  Tensor mean;
  Tensor variance;  // over `count` samples, not corrected
  Tensor count;     // one number
};

// Combines the means and squared deviations of the workers, one worker after another.
Statistics statistics_of_all(const Tensor& input, comm::Communicator& communicator) {
  const Tensor x = input.to(torch::kFloat64);
  const auto dims = other_dims(input);
  const auto channels = input.size(1);
  const double own_count = static_cast<double>(input.numel()) / static_cast<double>(channels);
  const Tensor own_mean = x.mean(dims);
  const Tensor own_squares = (x - along_channels(own_mean, x)).square().sum(dims);
  const auto all = communicator.all_gather(
      torch::cat({own_mean, own_squares, torch::full({1}, own_count, x.options())}));
  Statistics total{.mean = torch::zeros({channels}, x.options()),
                   .variance = torch::zeros({channels}, x.options()),
                   .count = torch::zeros({}, x.options())};
  for (const Tensor& one : all) {
    const Tensor mean = one.narrow(0, 0, channels);
    const Tensor squares = one.narrow(0, channels, channels);
    const Tensor count = one[2 * channels];
    const Tensor sum = total.count + count;
    const Tensor delta = mean - total.mean;
    total.mean = total.mean + delta * (count / sum);
    total.variance = total.variance + squares + delta.square() * (total.count * count / sum);
    total.count = sum;
  }
  total.variance = total.variance / total.count;
  // A worker with more than one value knows that all have more, without waiting for the sum.
  if (own_count <= 1 && total.count.item<double>() <= 1) {
    throw ConfigError("sync_bn: expected more than one value per channel, got {}",
                      total.count.item<double>());
  }
  return total;
}

class SyncBatchNorm : public torch::autograd::Function<SyncBatchNorm> {
 public:
  // Autograd cannot take undefined tensors as inputs, but it takes empty optionals.
  static Tensor forward(AutogradContext* context, const Tensor& given,
                        const OptionalTensor& maybe_weight, const OptionalTensor& maybe_bias,
                        const OptionalTensor& maybe_mean, const OptionalTensor& maybe_var,
                        double momentum, double eps) {
    // With autocast on, none of the operations below may change the type of its inputs.
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const Tensor input = in_full(given);
    const Tensor weight = maybe_weight.value_or(Tensor());
    const Tensor bias = maybe_bias.value_or(Tensor());
    const Tensor running_mean = maybe_mean.value_or(Tensor());
    const Tensor running_var = maybe_var.value_or(Tensor());
    const Statistics all = statistics_of_all(input, *current);
    if (running_mean.defined()) {
      Tensor mean = running_mean;
      Tensor variance = running_var;
      mean.mul_(1 - momentum).add_(all.mean.to(mean.scalar_type()), momentum);
      const Tensor corrected = all.variance * (all.count / (all.count - 1));
      variance.mul_(1 - momentum).add_(corrected.to(variance.scalar_type()), momentum);
    }
    const Tensor inverse = (all.variance + eps).rsqrt();
    const Tensor normal =
        (input - along_channels(all.mean, input)) * along_channels(inverse, input);
    context->save_for_backward({normal, inverse, weight, all.count});
    // Backward may run in a thread of autograd.
    context->saved_data["communicator"] = reinterpret_cast<std::int64_t>(current);
    Tensor output = normal;
    if (weight.defined()) output = output * along_channels(weight, input);
    if (bias.defined()) output = output + along_channels(bias, input);
    return output.to(given.scalar_type());
  }

  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor& normal = saved[0];
    const Tensor& inverse = saved[1];
    const Tensor& weight = saved[2];
    const Tensor grad = in_full(grads[0]);
    const auto dims = other_dims(normal);
    const auto channels = normal.size(1);
    const Tensor own_bias = grad.to(torch::kFloat64).sum(dims);
    const Tensor own_weight = (grad * normal).to(torch::kFloat64).sum(dims);
    const Tensor sums = torch::cat({own_bias, own_weight});
    reinterpret_cast<comm::Communicator*>(context->saved_data["communicator"].toInt())
        ->all_reduce(sums);
    const Tensor& count = saved[3];
    const Tensor mean_grad = along_channels(sums.narrow(0, 0, channels) / count, normal);
    const Tensor mean_product = along_channels(sums.narrow(0, channels, channels) / count, normal);
    Tensor factor = along_channels(inverse, normal);
    if (weight.defined()) factor = factor * along_channels(weight, normal);
    const Tensor input_grad =
        ((grad - mean_grad - normal * mean_product) * factor).to(grads[0].scalar_type());
    const auto like_weight = [&](const Tensor& sum) {
      return weight.defined() ? sum.to(weight.scalar_type()) : Tensor();
    };
    return {
        input_grad, like_weight(own_weight), like_weight(own_bias), Tensor(), Tensor(), Tensor(),
        Tensor()};
  }
};

bool defined(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined();
}

Tensor batch_norm(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                  const OptionalTensor& running_mean, const OptionalTensor& running_var,
                  bool training, double momentum, double eps, bool cudnn_enabled) {
  // A layer without running statistics uses those of the batch in evaluation, too. But in
  // evaluation workers may have different numbers of batches and must not wait for each other.
  // Evaluation is recognised by the fact that it records no gradients.
  const bool evaluates = !defined(running_mean) && !torch::GradMode::is_enabled();
  const bool is_measured = BatchNormStatistics::current() != nullptr && training &&
                           defined(running_mean) && defined(running_var) && !in_instance_norm;
  if (is_measured) {
    // With a momentum of 1, the running statistics become those of this batch.
    Tensor output = at::native::batch_norm(input, weight, bias, running_mean, running_var, training,
                                           /*momentum=*/1.0, eps, cudnn_enabled);
    BatchNormStatistics::current()->note(*running_mean);
    BatchNormStatistics::current()->note(*running_var);
    return output;
  }
  if (current == nullptr || in_instance_norm || !training || evaluates) {
    return at::native::batch_norm(input, weight, bias, running_mean, running_var, training,
                                  momentum, eps, cudnn_enabled);
  }
  return SyncBatchNorm::apply(input, weight, bias, running_mean, running_var, momentum, eps);
}

Tensor instance_norm(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                     const OptionalTensor& running_mean, const OptionalTensor& running_var,
                     bool use_input_stats, double momentum, double eps, bool cudnn_enabled) {
  struct InstanceNormScope {
    InstanceNormScope() : before(std::exchange(in_instance_norm, true)) {}
    ~InstanceNormScope() { in_instance_norm = before; }
    bool before;
  } const inside;
  return at::native::instance_norm(input, weight, bias, running_mean, running_var, use_input_stats,
                                   momentum, eps, cudnn_enabled);
}

// Sets the communicator of this thread until it is destroyed.
struct CurrentScope {
  explicit CurrentScope(comm::Communicator* communicator)
      : before(std::exchange(current, communicator)) {}
  ~CurrentScope() { current = before; }
  CurrentScope(const CurrentScope&) = delete;
  CurrentScope& operator=(const CurrentScope&) = delete;
  comm::Communicator* before;
};

}  // namespace

// The kernels stay registered for the rest of the process, because removing them could affect other
// code.
void replace_batch_norm() {
  static const std::vector<std::unique_ptr<torch::Library>> libraries = [] {
    std::vector<std::unique_ptr<torch::Library>> made;
    for (const auto key : {c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA}) {
      auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten",
                                                      c10::make_optional(key), __FILE__, __LINE__);
      library->impl("batch_norm", batch_norm);
      library->impl("instance_norm", instance_norm);
      made.push_back(std::move(library));
    }
    // On a GPU, backward() runs in a thread of autograd. A checkpointed batch norm is computed
    // again there.
    compute::inherit_thread_state([]() -> compute::SetThreadState {
      return [communicator = current] { return std::make_shared<CurrentScope>(communicator); };
    });
    return made;
  }();
}

SyncBatchNormScope::SyncBatchNormScope(comm::Communicator* communicator) : previous_(current) {
  if (communicator == nullptr || communicator->size() == 1) return;
  replace_batch_norm();
  current = communicator;
}

SyncBatchNormScope::~SyncBatchNormScope() {
  current = previous_;
}

}  // namespace lockstep
