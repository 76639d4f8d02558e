#include "lockstep/compute/planned_layer.h"

#include <typeinfo>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "lockstep/compute/elementwise.h"
#include "lockstep/compute/matrix_product.h"
#include "lockstep/compute/pooling.h"

namespace lockstep::compute {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

// The module as what it is, null where it is another or a class derived from it.
template <typename T>
std::shared_ptr<T> exactly(const std::shared_ptr<nn::Module>& module) {
  const nn::Module& object = *module;
  return typeid(object) == typeid(T) ? std::dynamic_pointer_cast<T>(module) : nullptr;
}

bool is_plain(const Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.scalar_type() == torch::kFloat &&
         tensor.is_contiguous();
}

// Memory of that shape: what is there, where it fits.
Tensor& shaped(Tensor& memory, torch::IntArrayRef shape, torch::ScalarType type = torch::kFloat) {
  if (!memory.defined() || memory.sizes() != shape) {
    memory = at::empty(shape, torch::dtype(type));
  }
  return memory;
}

// The gradient of ReLU's input, by its output.
const Tensor& masked(LayerPass& pass, const Tensor& grad) {
  Tensor& memory = shaped(pass.scratch, grad.sizes());
  relu_backward(grad.numel(), {.grad = grad.data_ptr<float>(),
                               .output = pass.output.data_ptr<float>(),
                               .masked = memory.data_ptr<float>()});
  return memory;
}

// Where backward() adds to; a parameter whose gradient is not there yet gets one of zeros.
Tensor grad_of(Tensor& parameter) {
  if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
  return parameter.grad();
}

class FlattenLayer : public PlannedLayer {
 public:
  explicit FlattenLayer(std::shared_ptr<nn::FlattenImpl> module) : module_(std::move(module)) {}

  bool accepts(const Tensor& input) const override { return input.is_contiguous(); }
  void forward(LayerPass& pass, bool) const override {
    pass.output =
        pass.input.flatten(module_->options.start_dim(), module_->options.end_dim());
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
};

class LinearLayer : public PlannedLayer {
 public:
  LinearLayer(std::shared_ptr<nn::LinearImpl> module, bool with_relu)
      : module_(std::move(module)), with_relu_(with_relu) {}

  bool accepts(const Tensor& input) const override {
    return is_plain(input) && is_plain(module_->weight) && input.dim() >= 2 && input.numel() > 0 &&
           input.size(-1) == in_features() &&
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

  std::vector<Tensor> parameters() const override {
    if (!module_->bias.defined()) return {module_->weight};
    return {module_->weight, module_->bias};
  }

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

template <typename Module, std::size_t kDims>
class ConvLayer : public PlannedLayer {
 public:
  ConvLayer(std::shared_ptr<Module> module, bool with_relu)
      : module_(std::move(module)), with_relu_(with_relu) {}

  static bool knows(const Module& module) {
    return c10::get_if<torch::enumtype::kZeros>(&module.options.padding_mode()) != nullptr &&
           c10::get_if<torch::ExpandingArray<kDims>>(&module.options.padding()) != nullptr;
  }

  bool accepts(const Tensor& input) const override {
    return is_plain(input) && is_plain(module_->weight) && input.dim() == kDims + 2 &&
           input.numel() > 0;
  }

  void forward(LayerPass& pass, bool) const override {
    const auto& options = module_->options;
    pass.output = at::convolution(pass.input, module_->weight, module_->bias, options.stride(),
                                  padding(), options.dilation(), /*transposed=*/false,
                                  std::vector<std::int64_t>(kDims, 0), options.groups())
                      .contiguous();
    if (with_relu_) relu(pass.output.numel(), pass.output.template data_ptr<float>());
  }

  void backward(LayerPass& pass, const Gradient& gradient) const override {
    const Tensor& grad = with_relu_ ? masked(pass, gradient.of_output) : gradient.of_output;
    const auto& options = module_->options;
    Tensor& weight = module_->weight;
    Tensor& bias = module_->bias;
    const bool wants_bias = bias.defined() && bias.requires_grad();
    const std::vector<std::int64_t> bias_shape{weight.size(0)};
    auto [input_grad, weight_grad, bias_grad] = at::convolution_backward(
        grad, pass.input, weight, at::OptionalIntArrayRef(bias_shape), options.stride(), padding(),
        options.dilation(), /*transposed=*/false, std::vector<std::int64_t>(kDims, 0),
        options.groups(), {gradient.of_input, weight.requires_grad(), wants_bias});
    if (gradient.of_input) pass.input_grad = input_grad.contiguous();
    if (weight.requires_grad()) grad_of(weight).add_(weight_grad);
    if (wants_bias) grad_of(bias).add_(bias_grad);
  }

  std::vector<Tensor> parameters() const override {
    if (!module_->bias.defined()) return {module_->weight};
    return {module_->weight, module_->bias};
  }

 private:
  torch::IntArrayRef padding() const {
    return *c10::get_if<torch::ExpandingArray<kDims>>(&module_->options.padding());
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
    const PoolGeometry g = *geometry(pass.input);
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
  std::optional<PoolGeometry> geometry(const Tensor& input) const {
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

  // Null where the next module is not known.
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
    // ReLU before a pooling goes with that.
    const bool pooled = peek<nn::MaxPool2dImpl>(1) != nullptr || peek<nn::MaxPool3dImpl>(1) != nullptr;
    return std::make_unique<ConvLayer<Module, kDims>>(module, !pooled && take_relu());
  }

  // On either side of it, ReLU is the same.
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
