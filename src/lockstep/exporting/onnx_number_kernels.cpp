// ONNX's operators on single numbers, reductions, comparisons and matrix products.
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/exporting/onnx_evaluator.h"

namespace lockstep::exporting {
namespace {

using Operation = OnnxOperation;
using Tensors = std::vector<torch::Tensor>;
using torch::Tensor;

void check_same_type(const Operation& o) {
  if (o[0].scalar_type() == o[1].scalar_type()) return;
  throw DataError("ONNX: {}: expected operands of one type, got {} and {}", o.node.name,
                  c10::toString(o[0].scalar_type()), c10::toString(o[1].scalar_type()));
}

template <Tensor (*F)(const Tensor&)>
void add_unary(OnnxKernels& to, const char* name) {
  to.emplace(name, [](const Operation& o) -> Tensors { return {F(o[0])}; });
}

template <typename F>
void add_binary(OnnxKernels& to, const char* name, F function) {
  to.emplace(name, [function](const Operation& o) -> Tensors {
    check_same_type(o);
    return {function(o[0], o[1])};
  });
}

// Division of integers cuts off.
Tensor quotient(const Tensor& a, const Tensor& b) {
  return a.is_floating_point() ? torch::div(a, b) : torch::div(a, b, "trunc");
}

// Axes are an attribute, or an input since operator set 18 (of ReduceSum: 13).
template <typename F>
void add_reduction(OnnxKernels& to, const char* name, F function) {
  to.emplace(name, [function](const Operation& o) -> Tensors {
    std::vector<std::int64_t> axes =
        o.has(1) ? o.integers(1) : o.attribute("axes", std::vector<std::int64_t>());
    if (axes.empty()) {
      for (std::int64_t d = 0; d < o[0].dim(); ++d) axes.push_back(d);
    }
    return {function(o[0], axes, o.attribute("keepdims", std::int64_t{1}) != 0)};
  });
}

Tensors gemm(const Operation& o) {
  const Tensor a = o.attribute("transA", std::int64_t{0}) != 0 ? o[0].t() : o[0];
  const Tensor b = o.attribute("transB", std::int64_t{0}) != 0 ? o[1].t() : o[1];
  Tensor y = a.mm(b) * o.attribute("alpha", 1.0);
  if (o.has(2)) y = y + o[2] * o.attribute("beta", 1.0);
  return {y};
}

Tensors clip(const Operation& o) {
  Tensor y = o[0];
  if (o.has(1)) y = torch::maximum(y, o[1]);
  if (o.has(2)) y = torch::minimum(y, o[2]);
  return {y};
}

Tensors where_kernel(const Operation& o) {
  if (o[1].scalar_type() != o[2].scalar_type()) {
    throw DataError("ONNX: {}: expected operands of one type", o.node.name);
  }
  return {torch::where(o[0], o[1], o[2])};
}

Tensor elu_of(const Tensor& x, double alpha) {
  return torch::where(x < 0, (x.exp() - 1) * alpha, x);
}

Tensors selu_kernel(const Operation& o) {
  const double alpha = o.attribute("alpha", 1.67326319217681884765625);
  const double gamma = o.attribute("gamma", 1.05070102214813232421875);
  return {elu_of(o[0], alpha) * gamma};
}

Tensors celu_kernel(const Operation& o) {
  const double alpha = o.attribute("alpha", 1.0);
  const Tensor negative = ((o[0] / alpha).exp() - 1).clamp_max(0) * alpha;
  return {o[0].clamp_min(0) + negative};
}

Tensors leaky_relu_kernel(const Operation& o) {
  return {torch::where(o[0] < 0, o[0] * o.attribute("alpha", 0.01), o[0])};
}

Tensors prelu_kernel(const Operation& o) {
  return {torch::where(o[0] < 0, o[0] * o[1], o[0])};
}

Tensors hard_sigmoid_kernel(const Operation& o) {
  return {(o[0] * o.attribute("alpha", 0.2) + o.attribute("beta", 0.5)).clamp(0, 1)};
}

// log(exp(x) + 1), without an overflow
Tensors softplus_kernel(const Operation& o) {
  return {o[0].clamp_min(0) + (-o[0].abs()).exp().log1p()};
}

Tensors softmax_kernel(const Operation& o) {
  const std::int64_t axis = o.attribute("axis", std::int64_t{-1});
  const Tensor powers = (o[0] - o[0].amax({axis}, true)).exp();
  return {powers / powers.sum({axis}, true)};
}

Tensors log_softmax_kernel(const Operation& o) {
  const std::int64_t axis = o.attribute("axis", std::int64_t{-1});
  const Tensor shifted = o[0] - o[0].amax({axis}, true);
  return {shifted - shifted.exp().sum({axis}, true).log()};
}

template <bool kLargest>
Tensors place_kernel(const Operation& o) {
  const std::int64_t axis = o.attribute("axis", std::int64_t{0});
  const bool keep = o.attribute("keepdims", std::int64_t{1}) != 0;
  return {kLargest ? o[0].argmax(axis, keep) : o[0].argmin(axis, keep)};
}

Tensors sum_so_far(const Operation& o) {
  return {o[0].cumsum(o.integers(1).front())};
}

void add_activation_kernels(OnnxKernels& to) {
  to.emplace("Relu", [](const Operation& o) -> Tensors { return {o[0].clamp_min(0)}; });
  to.emplace("LeakyRelu", leaky_relu_kernel);
  to.emplace("PRelu", prelu_kernel);
  to.emplace("Elu", [](const Operation& o) -> Tensors {
    return {elu_of(o[0], o.attribute("alpha", 1.0))};
  });
  to.emplace("Celu", celu_kernel);
  to.emplace("Selu", selu_kernel);
  to.emplace("HardSigmoid", hard_sigmoid_kernel);
  to.emplace("Softplus", softplus_kernel);
  to.emplace("Softmax", softmax_kernel);
  to.emplace("LogSoftmax", log_softmax_kernel);
  add_unary<torch::tanh>(to, "Tanh");
  add_unary<torch::sigmoid>(to, "Sigmoid");
}

void add_reductions(OnnxKernels& to) {
  using Axes = std::vector<std::int64_t>;
  add_reduction(to, "ReduceSum",
                [](const Tensor& x, const Axes& a, bool keep) { return x.sum(a, keep); });
  add_reduction(to, "ReduceMean",
                [](const Tensor& x, const Axes& a, bool keep) { return x.mean(a, keep); });
  add_reduction(to, "ReduceMax",
                [](const Tensor& x, const Axes& a, bool keep) { return x.amax(a, keep); });
  add_reduction(to, "ReduceMin",
                [](const Tensor& x, const Axes& a, bool keep) { return x.amin(a, keep); });
  to.emplace("ArgMax", place_kernel<true>);
  to.emplace("ArgMin", place_kernel<false>);
  to.emplace("CumSum", sum_so_far);
}

}  // namespace

void add_number_kernels(OnnxKernels& to) {
  add_unary<torch::sqrt>(to, "Sqrt");
  add_unary<torch::exp>(to, "Exp");
  add_unary<torch::log>(to, "Log");
  add_unary<torch::neg>(to, "Neg");
  add_unary<torch::abs>(to, "Abs");
  add_unary<torch::sign>(to, "Sign");
  add_unary<torch::reciprocal>(to, "Reciprocal");
  add_unary<torch::sin>(to, "Sin");
  add_unary<torch::cos>(to, "Cos");
  add_unary<torch::erf>(to, "Erf");
  add_unary<torch::floor>(to, "Floor");
  add_unary<torch::ceil>(to, "Ceil");
  add_unary<torch::logical_not>(to, "Not");
  add_binary(to, "Add", [](const Tensor& a, const Tensor& b) { return a + b; });
  add_binary(to, "Sub", [](const Tensor& a, const Tensor& b) { return a - b; });
  add_binary(to, "Mul", [](const Tensor& a, const Tensor& b) { return a * b; });
  add_binary(to, "Div", quotient);
  add_binary(to, "Pow", [](const Tensor& a, const Tensor& b) { return a.pow(b); });
  add_binary(to, "Min", [](const Tensor& a, const Tensor& b) { return torch::minimum(a, b); });
  add_binary(to, "Max", [](const Tensor& a, const Tensor& b) { return torch::maximum(a, b); });
  add_binary(to, "Equal", [](const Tensor& a, const Tensor& b) { return a == b; });
  add_binary(to, "Less", [](const Tensor& a, const Tensor& b) { return a < b; });
  add_binary(to, "LessOrEqual", [](const Tensor& a, const Tensor& b) { return a <= b; });
  add_binary(to, "Greater", [](const Tensor& a, const Tensor& b) { return a > b; });
  add_binary(to, "GreaterOrEqual", [](const Tensor& a, const Tensor& b) { return a >= b; });
  add_binary(to, "And", [](const Tensor& a, const Tensor& b) { return a.logical_and(b); });
  add_binary(to, "Or", [](const Tensor& a, const Tensor& b) { return a.logical_or(b); });
  add_binary(to, "MatMul", [](const Tensor& a, const Tensor& b) { return a.matmul(b); });
  to.emplace("Gemm", gemm);
  to.emplace("Clip", clip);
  to.emplace("Where", where_kernel);
  add_activation_kernels(to);
  add_reductions(to);
}

}  // namespace lockstep::exporting
