#include "lockstep/compute/pooling.h"

#include <memory>
#include <vector>

#include <ATen/ops/max_pool2d_native.h>
#include <ATen/ops/max_pool3d_native.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>
#include <torch/utils.h>

#include "lockstep/compute/autograd_node.h"
#include "lockstep/compute/switches.h"

namespace lockstep::compute {
namespace {

using torch::IntArrayRef;
using torch::Tensor;
using torch::autograd::variable_list;

// Depth, height, width from `values`, which has one value for all dimensions or `dims` values.
std::optional<Extent> extent(IntArrayRef values, std::size_t dims, std::int64_t depth) {
  if (values.size() != 1 && values.size() != dims) return std::nullopt;
  Extent extent = {depth, depth, depth};
  for (std::size_t d = 0; d < dims; ++d) {
    extent[3 - dims + d] = values.size() == 1 ? values[0] : values[d];
  }
  return extent;
}

struct PooledAxis {
  std::int64_t in, kernel, stride, padding, dilation;
};

std::int64_t pooled_size(const PooledAxis& axis, bool ceil_mode) {
  const std::int64_t room = axis.in + 2 * axis.padding - axis.dilation * (axis.kernel - 1) - 1;
  if (room < 0) return 0;
  std::int64_t out = (room + (ceil_mode ? axis.stride - 1 : 0)) / axis.stride + 1;
  // The last window must start inside the input or its padding on the left.
  if (ceil_mode && (out - 1) * axis.stride >= axis.in + axis.padding) --out;
  return out;
}

// A copy of the options.
struct Settings {
  std::vector<std::int64_t> kernel, stride, padding, dilation;
  bool ceil_mode = false;
  std::size_t dims = 2;

  Settings(const PoolOptions& options, std::size_t dims_of)
      : kernel(options.kernel.vec()),
        stride(options.stride.vec()),
        padding(options.padding.vec()),
        dilation(options.dilation.vec()),
        ceil_mode(options.ceil_mode),
        dims(dims_of) {}
};

Tensor pool_natively(const Tensor& input, const Settings& s) {
  const auto native = s.dims == 2 ? at::native::max_pool2d : at::native::max_pool3d;
  return native(input, s.kernel, s.stride, s.padding, s.dilation, s.ceil_mode);
}

struct MaxPoolBackward : torch::autograd::Node {
  MaxPoolBackward(const Tensor& input, const WindowGeometry& of, Settings with)
      : geometry(of),
        settings(std::move(with)),
        saved_input(input, /*is_output=*/false),
        shape(input.sizes().vec()) {}

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {Tensor()};
    // The caller wants a gradient of this gradient: LibTorch's own pooling records it.
    if (torch::GradMode::is_enabled()) {
      const Tensor input = saved_input.unpack();
      return torch::autograd::grad({pool_natively(input, settings)}, {input}, {grads[0]},
                                   /*retain_graph=*/true, /*create_graph=*/true);
    }
    saved_input.unpack();  // throws if the input was changed or released since
    const Tensor grad = grads[0].contiguous();
    Tensor grad_in = at::empty(shape, grad.options());
    max_pool_backward(geometry, {.grad_out = grad.data_ptr<float>(),
                                 .chosen = chosen.data_ptr<Chosen>(),
                                 .grad_in = grad_in.data_ptr<float>()});
    return {grad_in};
  }

  void release_variables() override {
    saved_input.reset_data();
    chosen.reset();
  }

  std::string name() const override { return "LockstepMaxPoolBackward"; }

  WindowGeometry geometry;
  Settings settings;
  torch::autograd::SavedVariable saved_input;
  std::vector<std::int64_t> shape;
  Tensor chosen;
};

// Nothing if LibTorch has to do it.
std::optional<Tensor> pool(const Tensor& input, const PoolOptions& options, std::size_t dims) {
  if (!is_enabled(Speedup::kPool)) return std::nullopt;
  const auto geometry = pool_geometry(input, options, dims);
  if (!geometry) return std::nullopt;
  Tensor out = at::empty(pooled_shape(input, *geometry, dims), input.options());
  PoolForward pass{.in = input.data_ptr<float>(), .out = out.data_ptr<float>(), .chosen = nullptr};
  if (!torch::GradMode::is_enabled() || !input.requires_grad()) {
    max_pool(*geometry, pass);
    return out;
  }
  const auto node = make_node<MaxPoolBackward>(input, *geometry, Settings(options, dims));
  node->chosen = at::empty(out.sizes(), input.options().dtype(torch::kUInt8));
  pass.chosen = node->chosen.data_ptr<Chosen>();
  max_pool(*geometry, pass);
  node->set_next_edges(torch::autograd::collect_next_edges(input));
  torch::autograd::set_history(out, node);
  return out;
}

Tensor max_pool2d(const Tensor& input, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  if (const auto out = pool(input, {kernel, stride, padding, dilation, ceil_mode}, 2)) return *out;
  return at::native::max_pool2d(input, kernel, stride, padding, dilation, ceil_mode);
}

Tensor max_pool3d(const Tensor& input, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  if (const auto out = pool(input, {kernel, stride, padding, dilation, ceil_mode}, 3)) return *out;
  return at::native::max_pool3d(input, kernel, stride, padding, dilation, ceil_mode);
}

}  // namespace

std::optional<WindowGeometry> pool_geometry(const Tensor& input, const PoolOptions& options,
                                            std::size_t dims) {
  const auto dim = static_cast<std::size_t>(input.dim());
  if (!input.device().is_cpu() || input.scalar_type() != torch::kFloat || input.is_mkldnn() ||
      input.is_sparse() || (dim != dims + 1 && dim != dims + 2) || !input.is_contiguous() ||
      input.numel() == 0) {
    return std::nullopt;
  }
  const auto kernel = extent(options.kernel, dims, 1);
  const auto stride = options.stride.empty() ? kernel : extent(options.stride, dims, 1);
  const auto padding = extent(options.padding, dims, 0);
  const auto dilation = extent(options.dilation, dims, 1);
  if (!kernel || !stride || !padding || !dilation) return std::nullopt;
  WindowGeometry geometry{.planes = 1,
                          .kernel = *kernel,
                          .stride = *stride,
                          .padding = *padding,
                          .dilation = *dilation};
  for (std::size_t d = 0; d + dims < dim; ++d) {
    geometry.planes *= input.size(static_cast<std::int64_t>(d));
  }
  for (std::size_t d = 0; d < dims; ++d) {
    geometry.in[3 - dims + d] = input.size(static_cast<std::int64_t>(dim - dims + d));
  }
  for (std::size_t d = 0; d < 3; ++d) {
    const PooledAxis axis{geometry.in[d], geometry.kernel[d], geometry.stride[d],
                          geometry.padding[d], geometry.dilation[d]};
    // LibTorch refuses values that make no sense, so they are left to it.
    if (axis.kernel < 1 || axis.stride < 1 || axis.dilation < 1 || axis.padding < 0 ||
        axis.padding > axis.kernel / 2) {
      return std::nullopt;
    }
    geometry.out[d] = pooled_size(axis, options.ceil_mode);
    if (geometry.out[d] < 1) return std::nullopt;
  }
  if (!can_choose(geometry)) return std::nullopt;
  return geometry;
}

std::vector<std::int64_t> pooled_shape(const Tensor& input, const WindowGeometry& geometry,
                                       std::size_t dims) {
  std::vector<std::int64_t> shape = input.sizes().vec();
  for (std::size_t d = 0; d < dims; ++d)
    shape[shape.size() - dims + d] = geometry.out[3 - dims + d];
  return shape;
}

void install_pooling() {
  static const auto library = [] {
    auto made = std::make_unique<torch::Library>(torch::Library::IMPL, "aten",
                                                 c10::make_optional(c10::DispatchKey::AutogradCPU),
                                                 __FILE__, __LINE__);
    made->impl("max_pool2d", max_pool2d);
    made->impl("max_pool3d", max_pool3d);
    return made;
  }();
  (void)library;
}

}  // namespace lockstep::compute
