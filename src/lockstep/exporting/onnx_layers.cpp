// Translators of layers: linear layers, convolutions, pools, norms and activations.
#include <algorithm>
#include <cmath>

#include "lockstep/exporting/onnx_translation.h"

namespace lockstep::exporting {
namespace {

using Call = OperatorCall;

void linear(Call& call) {
  OnnxBuilder& build = call.build();
  if (call.rank(0) == 2) {
    return call.result(build.add(
        "Gemm", {call.tensor(0), call.tensor(1), call.count() > 2 ? call.tensor_or(2, "") : ""},
        {{"transB", std::int64_t{1}}}));
  }
  const std::string product =
      build.add("MatMul", {call.tensor(0), build.transpose(call.tensor(1), {1, 0})});
  const bool has_bias = call.count() > 2 && !call.is_none(2);
  call.result(has_bias ? build.add("Add", {product, call.tensor(2)}) : product);
}

// One value for each dimension; a list of one value means all of them.
Integers for_each(Integers values, std::int64_t dimensions) {
  const auto count = static_cast<std::size_t>(dimensions);
  return values.size() == 1 ? Integers(count, values.front()) : values;
}

// ONNX has the padding at the beginnings and then at the ends.
Integers twice(const Integers& padding) {
  Integers both = padding;
  both.insert(both.end(), padding.begin(), padding.end());
  return both;
}

struct ConvolutionInputs {
  Integers stride, pads, dilation;
  Integers output_padding = {};  // of a transposed one
  bool is_transposed = false;
  std::int64_t groups = 1;
};

void add_convolution(Call& call, const ConvolutionInputs& inputs) {
  const auto spatial = call.rank(0) - 2;
  if (spatial != call.rank(1) - 2) call.refuse("its input has no dimension for the batch");
  Integers kernel;
  for (std::int64_t d = 0; d < spatial; ++d) kernel.push_back(call.size(1, d + 2));
  OnnxAttributes attributes = {{"kernel_shape", kernel},
                               {"strides", for_each(inputs.stride, spatial)},
                               {"pads", inputs.pads},
                               {"dilations", for_each(inputs.dilation, spatial)},
                               {"group", inputs.groups}};
  if (inputs.is_transposed) {
    attributes.emplace("output_padding", for_each(inputs.output_padding, spatial));
  }
  call.result(call.build().add(inputs.is_transposed ? "ConvTranspose" : "Conv",
                               {call.tensor(0), call.tensor(1), call.tensor_or(2, "")},
                               attributes));
}

// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, …)
void any_convolution(Call& call) {
  const auto spatial = call.rank(0) - 2;
  add_convolution(call, {.stride = call.integers(3),
                         .pads = twice(for_each(call.integers(4), spatial)),
                         .dilation = call.integers(5),
                         .output_padding = call.integers(7),
                         .is_transposed = call.flag(6),
                         .groups = call.integer(8)});
}

// Zeros so that the output has the size of the input.
Integers same_pads(Call& call, const Integers& dilation) {
  Integers begins, ends;
  for (std::size_t d = 0; d < dilation.size(); ++d) {
    const std::int64_t total = dilation[d] * (call.size(1, static_cast<std::int64_t>(d) + 2) - 1);
    begins.push_back(total / 2);
    ends.push_back(total - total / 2);
  }
  begins.insert(begins.end(), ends.begin(), ends.end());
  return begins;
}

// (input, weight, bias, stride, padding, dilation, groups); the padding may be "same" or "valid".
void convolution(Call& call) {
  const auto spatial = call.rank(0) - 2;
  const Integers dilation = for_each(call.integers(5), spatial);
  const OnnxValue& padding = call.value(4);
  const bool is_text = padding.known && padding.known->isString();
  const bool is_same = is_text && call.text(4) == "same";
  const Integers zeros(static_cast<std::size_t>(2 * spatial), 0);
  add_convolution(call, {.stride = call.integers(3),
                         .pads = is_same   ? same_pads(call, dilation)
                                 : is_text ? zeros
                                           : twice(for_each(call.integers(4), spatial)),
                         .dilation = dilation,
                         .groups = call.integer(6)});
}

// (input, weight, bias, stride, padding, output_padding, groups, dilation)
void transposed_convolution(Call& call) {
  const auto spatial = call.rank(0) - 2;
  add_convolution(call, {.stride = call.integers(3),
                         .pads = twice(for_each(call.integers(4), spatial)),
                         .dilation = call.integers(7),
                         .output_padding = call.integers(5),
                         .is_transposed = true,
                         .groups = call.integer(6)});
}

OnnxAttributes pool_attributes(Call& call, std::int64_t spatial) {
  if (call.rank(0) != spatial + 2) call.refuse("its input has no dimension for the batch");
  const Integers kernel = for_each(call.integers(1), spatial);
  const Integers stride = call.integers(2);
  return {{"kernel_shape", kernel},
          {"strides", stride.empty() ? kernel : for_each(stride, spatial)},
          {"pads", twice(for_each(call.integers(3), spatial))}};
}

// (input, kernel, stride, padding, dilation, ceil_mode)
void max_pool(Call& call, std::int64_t spatial) {
  OnnxAttributes attributes = pool_attributes(call, spatial);
  attributes.emplace("dilations", for_each(call.integers(4), spatial));
  attributes.emplace("ceil_mode", std::int64_t{call.flag(5)});
  if (call.node().outputs().size() > 1 && call.is_used(1)) call.refuse("its indices are used");
  call.result(call.build().add("MaxPool", {call.tensor(0)}, attributes));
}

// (input, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
void avg_pool(Call& call, std::int64_t spatial) {
  OnnxAttributes attributes = pool_attributes(call, spatial);
  if (call.flag(4)) call.refuse("ceil_mode");
  attributes.emplace("count_include_pad", std::int64_t{call.flag(5)});
  if (call.count() > 6 && !call.is_none(6)) call.refuse("divisor_override");
  call.result(call.build().add("AveragePool", {call.tensor(0)}, attributes));
}

// The matrix [size, wanted] whose columns are the weights of LibTorch's windows.
torch::Tensor averaging_matrix(std::int64_t size, std::int64_t wanted, torch::ScalarType type) {
  torch::Tensor matrix = torch::zeros({size, wanted}, torch::kFloat64);
  for (std::int64_t i = 0; i < wanted; ++i) {
    const std::int64_t begin = i * size / wanted;
    const std::int64_t end = ((i + 1) * size + wanted - 1) / wanted;
    matrix.select(1, i).slice(0, begin, end).fill_(1.0 / static_cast<double>(end - begin));
  }
  return matrix.to(type);
}

void adaptive_avg_pool(Call& call, std::int64_t spatial) {
  if (call.rank(0) != spatial + 2) call.refuse("its input has no dimension for the batch");
  OnnxBuilder& build = call.build();
  const Integers wanted = for_each(call.integers(1), spatial);
  if (std::ranges::all_of(wanted, [](std::int64_t size) { return size == 1; })) {
    return call.result(build.add("GlobalAveragePool", {call.tensor(0)}));
  }
  Integers window;
  for (std::int64_t d = 0; d < spatial; ++d) {
    const std::int64_t size = call.size(0, d + 2), out = wanted[static_cast<std::size_t>(d)];
    if (size % out == 0) window.push_back(size / out);
  }
  if (static_cast<std::int64_t>(window.size()) == spatial) {
    return call.result(build.add("AveragePool", {call.tensor(0)},
                                 {{"kernel_shape", window}, {"strides", window}}));
  }
  // Windows of several sizes: each dimension is multiplied by a matrix.
  std::string x = call.tensor(0);
  for (std::int64_t d = 0; d < spatial; ++d) {
    const std::int64_t size = call.size(0, d + 2), out = wanted[static_cast<std::size_t>(d)];
    if (size == out) continue;
    Integers order(static_cast<std::size_t>(spatial + 2));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
    std::swap(order[static_cast<std::size_t>(d + 2)], order.back());
    const bool is_last = d + 1 == spatial;
    if (!is_last) x = build.transpose(x, order);
    x = build.add("MatMul", {x, build.constant(averaging_matrix(size, out, call.type(0)))});
    if (!is_last) x = build.transpose(x, order);
  }
  call.result(x);
}

// The numbers of channels as [channels, 1, …], which fit [batch, channels, …].
std::string per_channel(Call& call, const std::string& name) {
  Integers axes;
  for (std::int64_t d = 1; d + 1 < call.rank(0); ++d) axes.push_back(d);
  return call.build().unsqueeze(name, axes);
}

std::string with_scale_and_shift(Call& call, std::string x, const std::string& scale,
                                 const std::string& shift) {
  if (!scale.empty()) x = call.build().add("Mul", {x, scale});
  return shift.empty() ? x : call.build().add("Add", {x, shift});
}

struct Normalization {
  Integers axes;
  double eps = 0;
};

std::string normalized(Call& call, const std::string& x, const Normalization& how) {
  OnnxBuilder& build = call.build();
  const std::string centred = build.add("Sub", {x, build.reduce("ReduceMean", x, how.axes, true)});
  const std::string variance =
      build.reduce("ReduceMean", build.add("Mul", {centred, centred}), how.axes, true);
  const std::string root = build.add(
      "Sqrt", {build.add("Add", {variance, build.constant(how.eps, call.output_type())})});
  return build.add("Div", {centred, root});
}

// A vector of one number per channel, where a norm has no weight.
std::string filled(Call& call, std::int64_t channels, double value) {
  return call.build().constant(torch::full({channels}, value, torch::kFloat64).to(call.type(0)));
}

void with_statistics(Call& call, double eps) {
  const std::int64_t channels = call.size(0, 1);
  const auto or_filled = [&](std::size_t input, double value) {
    return call.is_none(input) ? filled(call, channels, value) : call.tensor(input);
  };
  call.result(call.build().add(
      "BatchNormalization",
      {call.tensor(0), or_filled(1, 1), or_filled(2, 0), call.tensor(3), call.tensor(4)},
      {{"epsilon", eps}}));
}

// (input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled)
void batch_norm(Call& call) {
  if (!call.flag(5)) return with_statistics(call, call.number(7));
  // Without running statistics, those of the batch are used in evaluation, too.
  Normalization how{.axes = {0}, .eps = call.number(7)};
  for (std::int64_t d = 2; d < call.rank(0); ++d) how.axes.push_back(d);
  const auto weight = [&](std::size_t input) {
    return call.is_none(input) ? std::string() : per_channel(call, call.tensor(input));
  };
  call.result(
      with_scale_and_shift(call, normalized(call, call.tensor(0), how), weight(1), weight(2)));
}

// (input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled)
void instance_norm(Call& call) {
  if (!call.flag(5)) return with_statistics(call, call.number(7));
  const std::int64_t channels = call.size(0, 1);
  call.result(call.build().add(
      "InstanceNormalization",
      {call.tensor(0), call.is_none(1) ? filled(call, channels, 1) : call.tensor(1),
       call.is_none(2) ? filled(call, channels, 0) : call.tensor(2)},
      {{"epsilon", call.number(7)}}));
}

// (input, num_groups, weight, bias, eps, cudnn_enabled)
void group_norm(Call& call) {
  OnnxBuilder& build = call.build();
  const std::int64_t groups = call.integer(1);
  const std::string x = call.tensor(0);
  const std::string grouped = build.add(
      "InstanceNormalization",
      {build.reshape(x, {0, groups, -1}), filled(call, groups, 1), filled(call, groups, 0)},
      {{"epsilon", call.number(4)}});
  const std::string back = build.add("Reshape", {grouped, build.add("Shape", {x})});
  const auto weight = [&](std::size_t input) {
    return call.is_none(input) ? std::string() : per_channel(call, call.tensor(input));
  };
  call.result(with_scale_and_shift(call, back, weight(2), weight(3)));
}

// (input, normalized_shape, weight, bias, eps, cudnn_enable)
void layer_norm(Call& call) {
  constexpr std::int64_t kHasLayerNorm = 17;
  OnnxBuilder& build = call.build();
  const Integers shape = call.integers(1);
  const auto count = static_cast<std::int64_t>(shape.size());
  if (build.opset() >= kHasLayerNorm) {
    const std::string scale =
        call.is_none(2) ? build.constant(torch::ones(shape, call.type(0))) : call.tensor(2);
    return call.result(build.add("LayerNormalization",
                                 {call.tensor(0), scale, call.tensor_or(3, "")},
                                 {{"axis", -count}, {"epsilon", call.number(4)}}));
  }
  Normalization how{.axes = {}, .eps = call.number(4)};
  for (std::int64_t d = call.rank(0) - count; d < call.rank(0); ++d) how.axes.push_back(d);
  call.result(with_scale_and_shift(call, normalized(call, call.tensor(0), how),
                                   call.tensor_or(2, ""), call.tensor_or(3, "")));
}

// (input, p, train)
void dropout(Call& call) {
  if (call.flag(2)) call.refuse("it is in training mode; the model ignores train(false)");
  call.result(call.value(0));
}

std::string one(Call& call, const char* op, OnnxAttributes attributes = {}) {
  return call.build().add(op, {call.tensor(0)}, std::move(attributes));
}

std::string times_input(Call& call, const std::string& factor) {
  return call.build().add("Mul", {call.tensor(0), factor});
}

void elu(Call& call) {
  if (call.number(2) != 1 || call.number(3) != 1) call.refuse("scale or input_scale is not 1");
  call.result(one(call, "Elu", {{"alpha", call.number(1)}}));
}

void gelu(Call& call) {
  OnnxBuilder& build = call.build();
  const auto type = call.output_type();
  const auto number = [&](double value) { return build.constant(value, type); };
  const std::string x = call.tensor(0);
  std::string inner;
  if (call.count() > 1 && call.text(1) == "tanh") {
    const std::string cube = build.add("Mul", {x, build.add("Mul", {x, x})});
    const std::string sum = build.add("Add", {x, build.add("Mul", {cube, number(0.044715)})});
    inner = build.add("Tanh", {build.add("Mul", {sum, number(std::sqrt(2 / M_PI))})});
  } else {
    inner = build.add("Erf", {build.add("Mul", {x, number(std::sqrt(0.5))})});
  }
  const std::string half = build.add("Mul", {x, number(0.5)});
  call.result(build.add("Mul", {half, build.add("Add", {inner, number(1)})}));
}

void softplus(Call& call) {
  OnnxBuilder& build = call.build();
  const double beta = call.number(1);
  if (beta == 1) return call.result(one(call, "Softplus"));
  const std::string factor = build.constant(beta, call.output_type());
  call.result(build.add("Div", {build.add("Softplus", {times_input(call, factor)}), factor}));
}

void prelu(Call& call) {
  const std::string slope = call.tensor(1);
  const bool is_single = call.size(1, 0) == 1 || call.rank(0) < 3;
  call.result(
      call.build().add("PRelu", {call.tensor(0), is_single ? slope : per_channel(call, slope)}));
}

void log_sigmoid(Call& call) {
  OnnxBuilder& build = call.build();
  call.result(build.add("Neg", {build.add("Softplus", {build.add("Neg", {call.tensor(0)})})}));
}

void softmax(Call& call, const char* op) {
  const auto type = call.output_type();
  call.result(call.build().add(op, {call.operand(0, type)}, {{"axis", call.dimension(1)}}));
}

void glu(Call& call) {
  const std::int64_t axis = call.dimension(1);
  const std::int64_t half = call.size(0, axis) / 2;
  OnnxBuilder& build = call.build();
  const std::string x = call.tensor(0);
  call.result(build.add("Mul", {build.slice(x, axis, 0, half),
                                build.add("Sigmoid", {build.slice(x, axis, half, 2 * half)})}));
}

void relu6(Call& call) {
  OnnxBuilder& build = call.build();
  const auto type = call.output_type();
  call.result(
      build.add("Clip", {call.tensor(0), build.constant(0, type), build.constant(6, type)}));
}

// x * clip(x / 6 + 1 / 2, 0, 1)
void hardswish(Call& call) {
  call.result(times_input(call, one(call, "HardSigmoid", {{"alpha", 1.0 / 6}, {"beta", 0.5}})));
}

void add_activations(Translators& to) {
  add(to, {"aten::relu", "aten::relu_"}, [](Call& c) { c.result(one(c, "Relu")); });
  add(to, {"aten::relu6"}, relu6);
  add(to, {"aten::leaky_relu"}, [](Call& c) {
    c.result(one(c, "LeakyRelu", {{"alpha", c.number(1)}}));
  });
  add(to, {"aten::elu"}, elu);
  add(to, {"aten::celu"}, [](Call& c) { c.result(one(c, "Celu", {{"alpha", c.number(1)}})); });
  add(to, {"aten::selu"}, [](Call& c) { c.result(one(c, "Selu")); });
  add(to, {"aten::gelu"}, gelu);
  add(to, {"aten::silu"}, [](Call& c) { c.result(times_input(c, one(c, "Sigmoid"))); });
  add(to, {"aten::mish"},
      [](Call& c) { c.result(times_input(c, c.build().add("Tanh", {one(c, "Softplus")}))); });
  add(to, {"aten::hardswish"}, hardswish);
  add(to, {"aten::hardsigmoid"}, [](Call& c) {
    c.result(one(c, "HardSigmoid", {{"alpha", 1.0 / 6}, {"beta", 0.5}}));
  });
  add(to, {"aten::prelu", "aten::_prelu_kernel"}, prelu);
  add(to, {"aten::tanh"}, [](Call& c) { c.result(one(c, "Tanh")); });
  add(to, {"aten::sigmoid"}, [](Call& c) { c.result(one(c, "Sigmoid")); });
  add(to, {"aten::log_sigmoid"}, log_sigmoid);
  add(to, {"aten::softplus"}, softplus);
  add(to, {"aten::softmax", "aten::_softmax"}, [](Call& c) { softmax(c, "Softmax"); });
  add(to, {"aten::log_softmax", "aten::_log_softmax"}, [](Call& c) { softmax(c, "LogSoftmax"); });
  add(to, {"aten::glu"}, glu);
}

}  // namespace

void add_layers(Translators& to) {
  add(to, {"aten::linear"}, linear);
  add(to, {"aten::_convolution", "aten::convolution"}, any_convolution);
  add(to, {"aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::_convolution_mode"}, convolution);
  add(to, {"aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d"},
      transposed_convolution);
  add(to, {"aten::max_pool1d"}, [](Call& c) { max_pool(c, 1); });
  add(to, {"aten::max_pool2d", "aten::max_pool2d_with_indices"}, [](Call& c) { max_pool(c, 2); });
  add(to, {"aten::max_pool3d", "aten::max_pool3d_with_indices"}, [](Call& c) { max_pool(c, 3); });
  add(to, {"aten::avg_pool1d"}, [](Call& c) { avg_pool(c, 1); });
  add(to, {"aten::avg_pool2d"}, [](Call& c) { avg_pool(c, 2); });
  add(to, {"aten::avg_pool3d"}, [](Call& c) { avg_pool(c, 3); });
  add(to, {"aten::adaptive_avg_pool1d"}, [](Call& c) { adaptive_avg_pool(c, 1); });
  add(to, {"aten::adaptive_avg_pool2d"}, [](Call& c) { adaptive_avg_pool(c, 2); });
  add(to, {"aten::adaptive_avg_pool3d"}, [](Call& c) { adaptive_avg_pool(c, 3); });
  add(to, {"aten::batch_norm"}, batch_norm);
  add(to, {"aten::instance_norm"}, instance_norm);
  add(to, {"aten::group_norm"}, group_norm);
  add(to, {"aten::layer_norm"}, layer_norm);
  add(to,
      {"aten::dropout", "aten::dropout_", "aten::feature_dropout", "aten::feature_dropout_",
       "aten::alpha_dropout", "aten::feature_alpha_dropout"},
      dropout);
  add_activations(to);
}

}  // namespace lockstep::exporting
