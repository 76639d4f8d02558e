// Translators of operations on single numbers, of reductions, comparisons and matrix products.
#include <algorithm>
#include <cmath>

#include "lockstep/exporting/onnx_translation.h"

namespace lockstep::exporting {
namespace {

using Call = OperatorCall;

void same(Call& call) {
  call.result(call.value(0));
}

std::string unary(Call& call, const char* op) {
  return call.build().add(op, {call.operand(0, call.output_type())});
}

// The type in which two operands are compared.
torch::ScalarType common_type(Call& call) {
  if (call.is_tensor(0) && call.is_tensor(1)) {
    // A tensor without dimensions does not change the type of others of the same kind.
    const auto one = call.type(0), other = call.type(1);
    if (call.rank(0) == 0 && call.rank(1) > 0 && !c10::isFloatingType(one)) return other;
    if (call.rank(1) == 0 && call.rank(0) > 0 && !c10::isFloatingType(other)) return one;
    return c10::promoteTypes(one, other);
  }
  const std::size_t tensor = call.is_tensor(0) ? 0 : 1;
  const OnnxValue& number = call.value(1 - tensor);
  const bool is_integer = !number.known || !number.known->isDouble();
  const auto type = call.type(tensor);
  if (c10::isFloatingType(type)) return type;
  return is_integer ? (type == torch::kBool ? torch::kInt64 : type) : torch::kFloat32;
}

std::string binary(Call& call, const char* op) {
  const auto type = call.output_type();
  return call.build().add(op, {call.operand(0, type), call.operand(1, type)});
}

std::string compared(Call& call, const char* op) {
  auto type = common_type(call);
  // ONNX orders no truth values.
  if (type == torch::kBool && std::string_view(op) != "Equal") type = torch::kInt32;
  return call.build().add(op, {call.operand(0, type), call.operand(1, type)});
}

// An operand times alpha, the argument `scale`, if that is not 1.
std::string scaled(Call& call, std::size_t operand, std::size_t scale) {
  const auto type = call.output_type();
  const std::string name = call.operand(operand, type);
  const bool is_plain = call.count() <= scale || call.number(scale) == 1;
  return is_plain ? name : call.build().add("Mul", {name, call.operand(scale, type)});
}

bool is_integer_result(Call& call) {
  return !call.node().output()->type()->isSubtypeOf(*c10::TensorType::get());
}

// Sizes are computed with integers, which ONNX has as tensors without dimensions.
void integer_operation(Call& call, const char* op) {
  call.result(call.build().add(op, {call.integer_tensor(0), call.integer_tensor(1)}));
}

void add_tensors(Call& call) {
  if (is_integer_result(call)) return integer_operation(call, "Add");
  call.result(call.build().add("Add", {call.operand(0, call.output_type()), scaled(call, 1, 2)}));
}

void subtract(Call& call) {
  if (is_integer_result(call)) return integer_operation(call, "Sub");
  call.result(call.build().add("Sub", {call.operand(0, call.output_type()), scaled(call, 1, 2)}));
}

void subtract_from(Call& call) {
  call.result(call.build().add("Sub", {call.operand(1, call.output_type()), scaled(call, 0, 2)}));
}

void multiply(Call& call) {
  if (is_integer_result(call)) return integer_operation(call, "Mul");
  call.result(binary(call, call.output_type() == torch::kBool ? "And" : "Mul"));
}

void divide(Call& call) {
  const std::string quotient = binary(call, "Div");
  if (call.count() < 3 || call.is_none(2)) return call.result(quotient);
  if (call.text(2) != "floor" || !c10::isFloatingType(call.output_type())) {
    call.refuse(fmt::format("rounding_mode '{}'", call.text(2)));
  }
  call.result(call.build().add("Floor", {quotient}));
}

void power(Call& call) {
  call.result(binary(call, "Pow"));
}

void square(Call& call) {
  const std::string x = call.tensor(0);
  call.result(call.build().add("Mul", {x, x}));
}

void inverse_root(Call& call) {
  call.result(call.build().add("Reciprocal", {unary(call, "Sqrt")}));
}

void log1p(Call& call) {
  const auto type = call.output_type();
  const std::string more =
      call.build().add("Add", {call.operand(0, type), call.build().constant(1, type)});
  call.result(call.build().add("Log", {more}));
}

void expm1(Call& call) {
  const auto type = call.output_type();
  call.result(call.build().add("Sub", {unary(call, "Exp"), call.build().constant(1, type)}));
}

void not_equal(Call& call) {
  call.result(call.build().add("Not", {compared(call, "Equal")}));
}

void logical(Call& call, const char* op) {
  call.result(call.build().add(op, {call.operand(0, torch::kBool), call.operand(1, torch::kBool)}));
}

void logical_not(Call& call) {
  if (call.type(0) != torch::kBool &&
      std::string_view(call.node().kind().toQualString()) == "aten::bitwise_not") {
    call.refuse("it is applied to integers");
  }
  call.result(call.build().add("Not", {call.operand(0, torch::kBool)}));
}

void clamp(Call& call) {
  const auto type = call.output_type();
  const auto limit = [&](std::size_t i) {
    return call.count() <= i || call.is_none(i) ? std::string() : call.operand(i, type);
  };
  call.result(call.build().add("Clip", {call.operand(0, type), limit(1), limit(2)}));
}

void clamp_max(Call& call) {
  const auto type = call.output_type();
  call.result(call.build().add("Clip", {call.operand(0, type), "", call.operand(1, type)}));
}

void where(Call& call) {
  const auto type = call.output_type();
  call.result(call.build().add(
      "Where", {call.operand(0, torch::kBool), call.operand(1, type), call.operand(2, type)}));
}

void masked_fill(Call& call) {
  const auto type = call.output_type();
  call.result(call.build().add(
      "Where", {call.operand(1, torch::kBool), call.operand(2, type), call.operand(0, type)}));
}

Integers positive(Integers axes, std::int64_t rank) {
  for (std::int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  return axes;
}

// Sums and means. Without dimensions, all numbers are reduced.
void reduce(Call& call, const char* op, bool has_type) {
  const auto type = call.output_type();
  const std::string x = call.operand(0, type);
  // (self, dtype) or (self, dims, keepdim, dtype)
  const bool is_whole = call.count() == 1 || (has_type && call.count() == 2);
  const Integers axes = is_whole ? Integers() : positive(call.integers(1), call.rank(0));
  call.result(call.build().reduce(op, x, axes, !is_whole && call.flag(2)));
}

// max and min: of all numbers, along a dimension with the places, or of two tensors.
void extreme(Call& call, const char* reduction, const char* place, const char* elementwise) {
  if (call.count() == 1)
    return call.result(call.build().reduce(reduction, call.tensor(0), {}, false));
  if (call.count() == 2) return call.result(binary(call, elementwise));
  const std::int64_t axis = call.dimension(1);
  const bool keep = call.flag(2);
  call.result(call.build().reduce(reduction, call.tensor(0), {axis}, keep), 0);
  if (!call.is_used(1)) return;
  call.result(
      call.build().add(place, {call.tensor(0)}, {{"axis", axis}, {"keepdims", std::int64_t{keep}}}),
      1);
}

void place(Call& call, const char* op) {
  if (call.is_none(1)) call.refuse("it has no dimension");
  call.result(
      call.build().add(op, {call.tensor(0)},
                       {{"axis", call.dimension(1)}, {"keepdims", std::int64_t{call.flag(2)}}}));
}

void variance(Call& call, bool root) {
  // (self, dim, unbiased, keepdim) or (self, dim, correction, keepdim) or (self, unbiased)
  if (call.count() < 4) call.refuse("it has no dimensions");
  const auto type = call.output_type();
  OnnxBuilder& build = call.build();
  const Integers axes = positive(call.integers(1), call.rank(0));
  if (axes.empty()) call.refuse("it has no dimensions");
  std::int64_t count = 1;
  for (const std::int64_t axis : axes) count *= call.size(0, axis);
  const std::int64_t correction = call.is_none(2) ? 1 : static_cast<std::int64_t>(call.number(2));
  const std::string centred =
      build.add("Sub", {call.tensor(0), build.reduce("ReduceMean", call.tensor(0), axes, true)});
  const std::string mean =
      build.reduce("ReduceMean", build.add("Mul", {centred, centred}), axes, call.flag(3));
  const double factor = static_cast<double>(count) / static_cast<double>(count - correction);
  const std::string result = build.add("Mul", {mean, build.constant(factor, type)});
  call.result(root ? build.add("Sqrt", {result}) : result);
}

void cumulated(Call& call) {
  call.result(call.build().add(
      "CumSum", {call.operand(0, call.output_type()),
                 call.build().constant(static_cast<double>(call.dimension(1)), torch::kInt64)}));
}

void matmul(Call& call) {
  call.result(call.build().add("MatMul", {call.tensor(0), call.tensor(1)}));
}

void addmm(Call& call) {
  call.result(call.build().add("Gemm", {call.tensor(1), call.tensor(2), call.tensor(0)},
                               {{"beta", call.number(3)}, {"alpha", call.number(4)}}));
}

void baddbmm(Call& call) {
  OnnxBuilder& build = call.build();
  const auto type = call.output_type();
  std::string product = build.add("MatMul", {call.tensor(1), call.tensor(2)});
  if (call.number(4) != 1) product = build.add("Mul", {product, call.operand(4, type)});
  const OnnxValue& added = call.value(0);
  const bool is_zero = added.is_zero || (added.known && added.known->isTensor() &&
                                         !added.known->toTensor().any().item<bool>());
  if (is_zero || call.number(3) == 0) return call.result(product);
  std::string other = call.operand(0, type);
  if (call.number(3) != 1) other = build.add("Mul", {other, call.operand(3, type)});
  call.result(build.add("Add", {product, other}));
}

}  // namespace

void add_arithmetic(Translators& to) {
  add(to,
      {"aten::contiguous", "aten::clone", "aten::detach", "aten::alias", "aten::lift_fresh",
       "aten::positive", "aten::Int", "aten::ScalarImplicit", "prim::NumToTensor"},
      same);
  add(to, {"aten::add", "aten::add_"}, add_tensors);
  add(to, {"aten::sub", "aten::sub_"}, subtract);
  add(to, {"aten::rsub"}, subtract_from);
  add(to, {"aten::mul", "aten::mul_", "aten::multiply"}, multiply);
  add(to, {"aten::div", "aten::div_", "aten::true_divide", "aten::divide"}, divide);
  add(to, {"aten::pow"}, power);
  add(to, {"aten::square"}, square);
  add(to, {"aten::rsqrt"}, inverse_root);
  add(to, {"aten::log1p"}, log1p);
  add(to, {"aten::expm1"}, expm1);
  add(to, {"aten::sqrt"}, [](Call& c) { c.result(unary(c, "Sqrt")); });
  add(to, {"aten::exp"}, [](Call& c) { c.result(unary(c, "Exp")); });
  add(to, {"aten::log"}, [](Call& c) { c.result(unary(c, "Log")); });
  add(to, {"aten::neg"}, [](Call& c) { c.result(unary(c, "Neg")); });
  add(to, {"aten::abs"}, [](Call& c) { c.result(unary(c, "Abs")); });
  add(to, {"aten::sign"}, [](Call& c) { c.result(unary(c, "Sign")); });
  add(to, {"aten::reciprocal"}, [](Call& c) { c.result(unary(c, "Reciprocal")); });
  add(to, {"aten::sin"}, [](Call& c) { c.result(unary(c, "Sin")); });
  add(to, {"aten::cos"}, [](Call& c) { c.result(unary(c, "Cos")); });
  add(to, {"aten::erf"}, [](Call& c) { c.result(unary(c, "Erf")); });
  add(to, {"aten::floor"}, [](Call& c) { c.result(unary(c, "Floor")); });
  add(to, {"aten::ceil"}, [](Call& c) { c.result(unary(c, "Ceil")); });
  add(to, {"aten::minimum"}, [](Call& c) { c.result(binary(c, "Min")); });
  add(to, {"aten::maximum"}, [](Call& c) { c.result(binary(c, "Max")); });
  add(to, {"aten::eq"}, [](Call& c) { c.result(compared(c, "Equal")); });
  add(to, {"aten::ne"}, not_equal);
  add(to, {"aten::lt"}, [](Call& c) { c.result(compared(c, "Less")); });
  add(to, {"aten::le"}, [](Call& c) { c.result(compared(c, "LessOrEqual")); });
  add(to, {"aten::gt"}, [](Call& c) { c.result(compared(c, "Greater")); });
  add(to, {"aten::ge"}, [](Call& c) { c.result(compared(c, "GreaterOrEqual")); });
  add(to, {"aten::logical_and"}, [](Call& c) { logical(c, "And"); });
  add(to, {"aten::logical_or"}, [](Call& c) { logical(c, "Or"); });
  add(to, {"aten::logical_not", "aten::bitwise_not"}, logical_not);
  add(to, {"aten::clamp", "aten::clamp_min", "aten::hardtanh"}, clamp);
  add(to, {"aten::clamp_max"}, clamp_max);
  add(to, {"aten::where"}, where);
  add(to, {"aten::masked_fill"}, masked_fill);
  add(to, {"aten::sum"}, [](Call& c) { reduce(c, "ReduceSum", true); });
  add(to, {"aten::mean"}, [](Call& c) { reduce(c, "ReduceMean", true); });
  add(to, {"aten::amax"}, [](Call& c) { reduce(c, "ReduceMax", false); });
  add(to, {"aten::amin"}, [](Call& c) { reduce(c, "ReduceMin", false); });
  add(to, {"aten::max"}, [](Call& c) { extreme(c, "ReduceMax", "ArgMax", "Max"); });
  add(to, {"aten::min"}, [](Call& c) { extreme(c, "ReduceMin", "ArgMin", "Min"); });
  add(to, {"aten::argmax"}, [](Call& c) { place(c, "ArgMax"); });
  add(to, {"aten::argmin"}, [](Call& c) { place(c, "ArgMin"); });
  add(to, {"aten::var"}, [](Call& c) { variance(c, false); });
  add(to, {"aten::std"}, [](Call& c) { variance(c, true); });
  add(to, {"aten::cumsum"}, cumulated);
  add(to, {"aten::matmul", "aten::mm", "aten::bmm"}, matmul);
  add(to, {"aten::addmm"}, addmm);
  add(to, {"aten::baddbmm"}, baddbmm);
}

}  // namespace lockstep::exporting
