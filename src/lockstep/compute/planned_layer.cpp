#include "lockstep/compute/planned_layer.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <typeinfo>
#include <variant>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "lockstep/compute/elementwise.h"
#include "lockstep/compute/matrix_product.h"
#include "lockstep/compute/parallel.h"
#include "lockstep/compute/patches.h"
#include "lockstep/compute/pooling.h"
#include "lockstep/compute/switches.h"

namespace lockstep::compute {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

// The module as a T; null if it is of another type or of a type derived from T.
template <typename T>
std::shared_ptr<T> exactly(const std::shared_ptr<nn::Module>& module) {
  const nn::Module& object = *module;
  return typeid(object) == typeid(T) ? std::dynamic_pointer_cast<T>(module) : nullptr;
}

bool is_plain(const Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.scalar_type() == torch::kFloat &&
         tensor.is_contiguous();
}

// Memory of that shape: the given tensor if it fits, else a new one.
Tensor& shaped(Tensor& memory, torch::IntArrayRef shape, torch::ScalarType type = torch::kFloat) {
  if (!memory.defined() || memory.sizes() != shape) {
    memory = at::empty(shape, torch::dtype(type));
  }
  return memory;
}

// The gradient of ReLU's input, computed from its output.
const Tensor& masked(LayerPass& pass, const Tensor& grad) {
  Tensor& memory = shaped(pass.scratch, grad.sizes());
  relu_backward(grad.numel(), {.grad = grad.data_ptr<float>(),
                               .output = pass.output.data_ptr<float>(),
                               .masked = memory.data_ptr<float>()});
  return memory;
}

// The tensor to which backward() adds: zeros if there is no gradient yet, and always in the same
// memory layout as the parameter. Its version is increased, as autograd does with every change.
Tensor grad_of(Tensor& parameter) {
  Tensor& grad = parameter.mutable_grad();
  if (!grad.defined()) {
    grad = torch::zeros_like(parameter);
  } else if (!is_plain(grad) || grad.sizes() != parameter.sizes()) {
    grad = grad.to_dense().expand_as(parameter).to(torch::kFloat).contiguous();
  }
  grad.unsafeGetTensorImpl()->bump_version();
  return grad;
}

template <typename Module>
std::vector<Tensor> weight_and_bias(const Module& module) {
  if (!module.bias.defined()) return {module.weight};
  return {module.weight, module.bias};
}

class FlattenLayer : public PlannedLayer {
 public:
  explicit FlattenLayer(std::shared_ptr<nn::FlattenImpl> module) : module_(std::move(module)) {}

  bool accepts(const Tensor& input) const override { return input.is_contiguous(); }
  void forward(LayerPass& pass, bool) const override {
    pass.output = pass.input.flatten(module_->options.start_dim(), module_->options.end_dim());
  }
  void backward(LayerPass& pass, const Gradient& gradient) const override {
    if (gradient.of_input) pass.input_grad = gradient.of_output.view(pass.input.sizes());
  }
  bool is_view() const override { return true; }

 private:
  std::shared_ptr<nn::FlattenImpl> module_;
};

class ReluLayer : public PlannedLayer {
 public:
  bool accepts(const Tensor& input) const override { return is_plain(input); }
  void forward(LayerPass& pass, bool) const override {
    shaped(pass.output, pass.input.sizes()).copy_(pass.input);
    relu(pass.output.numel(), pass.output.data_ptr<float>());
  }
  void backward(LayerPass& pass, const Gradient& gradient) const override {
    if (gradient.of_input) pass.input_grad = masked(pass, gradient.of_output);
  }
  bool needs_output() const override { return true; }
};

class LinearLayer : public PlannedLayer {
 public:
  LinearLayer(std::shared_ptr<nn::LinearImpl> module, bool with_relu)
      : module_(std::move(module)), with_relu_(with_relu) {}

  bool accepts(const Tensor& input) const override {
    return is_plain(input) && is_plain(module_->weight) && input.dim() >= 2 && input.numel() > 0 &&
           module_->weight.numel() > 0 && input.size(-1) == in_features() &&
           (!module_->bias.defined() || is_plain(module_->bias));
  }

  void forward(LayerPass& pass, bool) const override {
    std::vector<std::int64_t> shape = pass.input.sizes().vec();
    shape.back() = out_features();
    const Rows rows = rows_of(pass);
    auto* const out = shaped(pass.output, shape).data_ptr<float>();
    const bool has_bias = module_->bias.defined();
    if (has_bias) repeat_row(rows, module_->bias.data_ptr<float>(), out);
    multiply({.a = input_matrix(pass),
              .b = {.data = module_->weight.data_ptr<float>(),
                    .rows = in_features(),
                    .columns = out_features(),
                    .stride = in_features(),
                    .transposed = true},
              .accumulate = has_bias},
             out);
    if (with_relu_) relu(rows.size(), out);
  }

  void backward(LayerPass& pass, const Gradient& gradient) const override {
    const Tensor& grad = with_relu_ ? masked(pass, gradient.of_output) : gradient.of_output;
    const auto* const data = grad.data_ptr<float>();
    const Rows rows = rows_of(pass);
    if (module_->weight.requires_grad()) {
      multiply({.a = {.data = data,
                      .rows = out_features(),
                      .columns = rows.count,
                      .stride = out_features(),
                      .transposed = true},
                .b = input_matrix(pass),
                .accumulate = true},
               grad_of(module_->weight).data_ptr<float>());
    }
    if (module_->bias.defined() && module_->bias.requires_grad()) {
      add_rows(rows, data, grad_of(module_->bias).data_ptr<float>());
    }
    if (!gradient.of_input) return;
    multiply({.a = {.data = data,
                    .rows = rows.count,
                    .columns = out_features(),
                    .stride = out_features()},
              .b = {.data = module_->weight.data_ptr<float>(),
                    .rows = out_features(),
                    .columns = in_features(),
                    .stride = in_features()}},
             shaped(pass.input_grad, pass.input.sizes()).data_ptr<float>());
  }

  std::vector<Tensor> parameters() const override { return weight_and_bias(*module_); }
  bool needs_output() const override { return with_relu_; }

 private:
  std::int64_t in_features() const { return module_->weight.size(1); }
  std::int64_t out_features() const { return module_->weight.size(0); }
  Rows rows_of(const LayerPass& pass) const {
    return {.count = pass.input.numel() / in_features(), .width = out_features()};
  }
  Matrix input_matrix(const LayerPass& pass) const {
    return {.data = pass.input.data_ptr<float>(),
            .rows = pass.input.numel() / in_features(),
            .columns = in_features(),
            .stride = in_features()};
  }

  std::shared_ptr<nn::LinearImpl> module_;
  bool with_relu_;
};

// Uses LibTorch's kernels, unless an output depends on few inputs. These are then gathered into a
// matrix for one product: always for the gradient of the weights, and for everything else if no
// input is in two patches.
template <typename Module, std::size_t kDims>
class ConvLayer : public PlannedLayer {
 public:
  ConvLayer(std::shared_ptr<Module> module, bool with_relu)
      : module_(std::move(module)), with_relu_(with_relu) {}

  static bool knows(const Module& module) {
    using std::get_if;  // of c10's variant in LibTorch 1.13
    return get_if<torch::enumtype::kZeros>(&module.options.padding_mode()) != nullptr &&
           get_if<torch::ExpandingArray<kDims>>(&module.options.padding()) != nullptr;
  }

  bool accepts(const Tensor& input) const override {
    const Tensor& weight = module_->weight;
    if (!is_plain(input) || !is_plain(weight) || input.dim() != kDims + 2 ||
        weight.dim() != kDims + 2 || input.numel() == 0 || weight.numel() == 0 ||
        input.size(1) != weight.size(1) * module_->options.groups() ||
        (module_->bias.defined() && !is_plain(module_->bias))) {
      return false;
    }
    // LibTorch refuses values that make no sense, so they are left to it.
    for (std::size_t d = 0; d < kDims; ++d) {
      if ((*module_->options.stride())[d] < 1 || (*module_->options.dilation())[d] < 1 ||
          padding()[d] < 0) {
        return false;
      }
    }
    return geometry(input).out_size() > 0;
  }

  void forward(LayerPass& pass, bool) const override {
    const WindowGeometry g = geometry(pass.input);
    if (has_small_patches(g) && g.are_separate()) {
      forward_by_patches(g, pass);
    } else {
      const auto& options = module_->options;
      pass.output = at::convolution(pass.input, module_->weight, module_->bias, options.stride(),
                                    padding(), options.dilation(), /*transposed=*/false,
                                    kNoOutputPadding, options.groups())
                        .contiguous();
    }
    if (with_relu_) relu(pass.output.numel(), pass.output.template data_ptr<float>());
  }

  void backward(LayerPass& pass, const Gradient& gradient) const override {
    const Tensor& grad = with_relu_ ? masked(pass, gradient.of_output) : gradient.of_output;
    const WindowGeometry g = geometry(pass.input);
    const bool by_patches = has_small_patches(g);
    bool of_input = gradient.of_input;
    bool of_weight = module_->weight.requires_grad();
    if (by_patches && of_weight) add_weight_grad(g, pass, grad);
    if (by_patches && of_input && g.are_separate()) {
      input_grad_by_patches(g, pass, grad);
      of_input = false;
    }
    if (module_->bias.defined() && module_->bias.requires_grad()) {
      std::vector<std::int64_t> others{0};
      for (std::int64_t d = 2; d < grad.dim(); ++d) others.push_back(d);
      grad_of(module_->bias).add_(grad.sum(others));
    }
    of_weight = of_weight && !by_patches;
    if (!of_input && !of_weight) return;
    const auto& options = module_->options;
    const auto grads =
        at::convolution_backward(grad, pass.input, module_->weight, c10::nullopt, options.stride(),
                                 padding(), options.dilation(), /*transposed=*/false,
                                 kNoOutputPadding, options.groups(), {of_input, of_weight, false});
    if (of_input) pass.input_grad = std::get<0>(grads).contiguous();
    if (of_weight) grad_of(module_->weight).add_(std::get<1>(grads));
  }

  std::vector<Tensor> parameters() const override { return weight_and_bias(*module_); }
  bool needs_output() const override { return with_relu_; }

 private:
  static constexpr std::array<std::int64_t, kDims> kNoOutputPadding = {};
  static constexpr std::int64_t kSmallPatch = 64;

  torch::IntArrayRef padding() const {
    using std::get_if;
    return *get_if<torch::ExpandingArray<kDims>>(&module_->options.padding());
  }

  WindowGeometry geometry(const Tensor& input) const {
    const auto& options = module_->options;
    WindowGeometry g{.planes = input.size(1)};
    for (std::size_t d = 0; d < kDims; ++d) {
      const std::size_t axis = 3 - kDims + d;
      g.in[axis] = input.size(static_cast<std::int64_t>(d) + 2);
      g.kernel[axis] = module_->weight.size(static_cast<std::int64_t>(d) + 2);
      g.stride[axis] = (*options.stride())[d];
      g.padding[axis] = padding()[d];
      g.dilation[axis] = (*options.dilation())[d];
      const std::int64_t room =
          g.in[axis] + 2 * g.padding[axis] - g.dilation[axis] * (g.kernel[axis] - 1) - 1;
      g.out[axis] = room < 0 ? 0 : room / g.stride[axis] + 1;
    }
    return g;
  }

  bool has_small_patches(const WindowGeometry& g) const {
    return module_->options.groups() == 1 && patch_size(g) <= kSmallPatch &&
           is_enabled(Speedup::kPatches);
  }

  static std::int64_t patch_size(const WindowGeometry& g) { return g.planes * g.taps(); }
  std::int64_t out_channels() const { return module_->weight.size(0); }

  void forward_by_patches(const WindowGeometry& g, LayerPass& pass) const {
    const std::int64_t samples = pass.input.size(0);
    std::vector<std::int64_t> shape{samples, out_channels()};
    shape.insert(shape.end(), g.out.begin() + (3 - kDims), g.out.end());
    const auto* const in = pass.input.template data_ptr<float>();
    auto* const out = shaped(pass.output, shape).template data_ptr<float>();
    auto* const columns =
        shaped(pass.kept, {samples, patch_size(g), g.out_size()}).template data_ptr<float>();
    const auto* const weight = module_->weight.template data_ptr<float>();
    const auto* const bias =
        module_->bias.defined() ? module_->bias.template data_ptr<float>() : nullptr;
    for_samples(g, samples, [&](std::int64_t sample) {
      float* const to = out + sample * out_channels() * g.out_size();
      float* const patches = columns + sample * patch_size(g) * g.out_size();
      gather_patches(g, in + sample * g.planes * g.in_size(), patches);
      for (std::int64_t c = 0; bias != nullptr && c < out_channels(); ++c) {
        std::fill_n(to + c * g.out_size(), g.out_size(), bias[c]);
      }
      multiply({.a = {.data = weight,
                      .rows = out_channels(),
                      .columns = patch_size(g),
                      .stride = patch_size(g)},
                .b = {.data = patches,
                      .rows = patch_size(g),
                      .columns = g.out_size(),
                      .stride = g.out_size()},
                .accumulate = bias != nullptr},
               to);
    });
  }

  // Each thread has its own sum; the sums are added in order.
  void add_weight_grad(const WindowGeometry& g, LayerPass& pass, const Tensor& grad) const {
    const std::int64_t samples = pass.input.size(0);
    const std::int64_t parts = std::clamp<std::int64_t>(at::get_num_threads(), 1, samples);
    const bool has_columns = g.are_separate();
    const auto* const in = pass.input.template data_ptr<float>();
    const auto* const of_output = grad.template data_ptr<float>();
    auto* const sum = grad_of(module_->weight).template data_ptr<float>();
    Tensor others;
    if (parts > 1) others = at::zeros({parts - 1, module_->weight.numel()});
    for_ranges({.size = parts}, [&](std::int64_t first, std::int64_t last) {
      std::vector<float> scratch;
      if (!has_columns) scratch.resize(static_cast<std::size_t>(patch_size(g) * g.out_size()));
      for (std::int64_t part = first; part < last; ++part) {
        float* const to =
            part == 0 ? sum
                      : others.template data_ptr<float>() + (part - 1) * module_->weight.numel();
        for (std::int64_t s = samples * part / parts; s < samples * (part + 1) / parts; ++s) {
          const float* patches = scratch.data();
          if (has_columns) {
            patches = pass.kept.template data_ptr<float>() + s * patch_size(g) * g.out_size();
          } else {
            gather_patches(g, in + s * g.planes * g.in_size(), scratch.data());
          }
          multiply({.a = {.data = of_output + s * out_channels() * g.out_size(),
                          .rows = out_channels(),
                          .columns = g.out_size(),
                          .stride = g.out_size()},
                    .b = {.data = patches,
                          .rows = g.out_size(),
                          .columns = patch_size(g),
                          .stride = g.out_size(),
                          .transposed = true},
                    .accumulate = true},
                   to);
        }
      }
    });
    if (parts > 1) {
      add_rows({.count = parts - 1, .width = module_->weight.numel()},
               others.template data_ptr<float>(), sum);
    }
  }

  void input_grad_by_patches(const WindowGeometry& g, LayerPass& pass, const Tensor& grad) const {
    const auto* const of_output = grad.template data_ptr<float>();
    auto* const of_input = shaped(pass.input_grad, pass.input.sizes()).template data_ptr<float>();
    const auto* const weight = module_->weight.template data_ptr<float>();
    auto* const columns = shaped(pass.kept_grad, pass.kept.sizes()).template data_ptr<float>();
    for_samples(g, pass.input.size(0), [&](std::int64_t sample) {
      float* const patches = columns + sample * patch_size(g) * g.out_size();
      multiply({.a = {.data = weight,
                      .rows = patch_size(g),
                      .columns = out_channels(),
                      .stride = patch_size(g),
                      .transposed = true},
                .b = {.data = of_output + sample * out_channels() * g.out_size(),
                      .rows = out_channels(),
                      .columns = g.out_size(),
                      .stride = g.out_size()}},
               patches);
      scatter_patches(g, patches, of_input + sample * g.planes * g.in_size());
    });
  }

  static void for_samples(const WindowGeometry& g, std::int64_t samples,
                          const std::function<void(std::int64_t)>& body) {
    constexpr std::int64_t kGrain = 64 * 1024;  // elements that are worth a thread
    const std::int64_t size = std::max<std::int64_t>(1, patch_size(g) * g.out_size());
    for_ranges({.size = samples, .grain = std::max<std::int64_t>(1, kGrain / size)},
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t s = begin; s < end; ++s) body(s);
               });
  }

  std::shared_ptr<Module> module_;
  bool with_relu_;
};

template <typename Module, std::size_t kDims>
class PoolLayer : public PlannedLayer {
 public:
  PoolLayer(std::shared_ptr<Module> module, bool with_relu)
      : module_(std::move(module)), with_relu_(with_relu) {}

  bool accepts(const Tensor& input) const override { return geometry(input).has_value(); }

  void forward(LayerPass& pass, bool for_backward) const override {
    const WindowGeometry g = *geometry(pass.input);
    const auto shape = pooled_shape(pass.input, g, kDims);
    if (for_backward) shaped(pass.kept, shape, torch::kUInt8);
    max_pool(g, {.in = pass.input.template data_ptr<float>(),
                 .out = shaped(pass.output, shape).template data_ptr<float>(),
                 .chosen = for_backward ? pass.kept.template data_ptr<Chosen>() : nullptr,
                 .relu = with_relu_});
  }

  void backward(LayerPass& pass, const Gradient& gradient) const override {
    if (!gradient.of_input) return;
    max_pool_backward(
        *geometry(pass.input),
        {.grad_out = gradient.of_output.template data_ptr<float>(),
         .chosen = pass.kept.template data_ptr<Chosen>(),
         .grad_in = shaped(pass.input_grad, pass.input.sizes()).template data_ptr<float>()});
  }

 private:
  std::optional<WindowGeometry> geometry(const Tensor& input) const {
    const auto& options = module_->options;
    return pool_geometry(input,
                         {.kernel = options.kernel_size(),
                          .stride = options.stride(),
                          .padding = options.padding(),
                          .dilation = options.dilation(),
                          .ceil_mode = options.ceil_mode()},
                         kDims);
  }

  std::shared_ptr<Module> module_;
  bool with_relu_;
};

// Takes modules from the front of a list.
class Planner {
 public:
  explicit Planner(const std::vector<std::shared_ptr<nn::Module>>& modules) : modules_(modules) {}

  bool at_end() const { return at_ == modules_.size(); }

  // Null if the next module is not known.
  std::unique_ptr<PlannedLayer> next() {
    if (auto module = take<nn::FlattenImpl>()) return std::make_unique<FlattenLayer>(module);
    if (auto module = take<nn::LinearImpl>()) {
      return std::make_unique<LinearLayer>(module, take_relu());
    }
    if (auto layer = conv<nn::Conv1dImpl, 1>()) return layer;
    if (auto layer = conv<nn::Conv2dImpl, 2>()) return layer;
    if (auto layer = conv<nn::Conv3dImpl, 3>()) return layer;
    if (auto layer = pool<nn::MaxPool2dImpl, 2>()) return layer;
    if (auto layer = pool<nn::MaxPool3dImpl, 3>()) return layer;
    if (take_relu()) return std::make_unique<ReluLayer>();
    return nullptr;
  }

 private:
  template <typename T>
  std::shared_ptr<T> peek(std::size_t ahead = 0) const {
    return at_ + ahead < modules_.size() ? exactly<T>(modules_[at_ + ahead]) : nullptr;
  }
  template <typename T>
  std::shared_ptr<T> take() {
    auto module = peek<T>();
    if (module != nullptr) ++at_;
    return module;
  }
  bool take_relu() { return take<nn::ReLUImpl>() != nullptr; }

  template <typename Module, std::size_t kDims>
  std::unique_ptr<PlannedLayer> conv() {
    const auto module = peek<Module>();
    if (module == nullptr || !ConvLayer<Module, kDims>::knows(*module)) return nullptr;
    ++at_;
    // ReLU before a pooling layer is combined with that layer.
    const bool pooled =
        peek<nn::MaxPool2dImpl>(1) != nullptr || peek<nn::MaxPool3dImpl>(1) != nullptr;
    return std::make_unique<ConvLayer<Module, kDims>>(module, !pooled && take_relu());
  }

  // ReLU before the pooling gives the same as ReLU after it.
  template <typename Module, std::size_t kDims>
  std::unique_ptr<PlannedLayer> pool() {
    const bool before = peek<nn::ReLUImpl>() != nullptr && peek<Module>(1) != nullptr;
    if (before) ++at_;
    const auto module = take<Module>();
    if (module == nullptr) return nullptr;
    const bool after = take_relu();
    return std::make_unique<PoolLayer<Module, kDims>>(module, before || after);
  }

  const std::vector<std::shared_ptr<nn::Module>>& modules_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<PlannedLayer>> plan_layers(
    const std::vector<std::shared_ptr<nn::Module>>& modules) {
  std::vector<std::unique_ptr<PlannedLayer>> layers;
  Planner planner(modules);
  while (!planner.at_end()) {
    auto layer = planner.next();
    if (layer == nullptr) return {};
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace lockstep::compute
