#include "lockstep/exporting/onnx_translation.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include <torch/csrc/jit/ir/constants.h>

#include "lockstep/base/error.h"

namespace lockstep::exporting {
namespace {

namespace jit = torch::jit;

Integers list_of(const c10::IValue& value) {
  if (value.isIntList()) return value.toIntVector();
  if (value.isInt()) return {value.toInt()};
  throw ConfigError("export: expected integers, got a {}", value.tagKind());
}

std::vector<std::optional<std::int64_t>> sizes_of(const jit::Value& value) {
  const auto type = value.type()->cast<c10::TensorType>();
  const auto sizes =
      type ? type->sizes().sizes() : c10::optional<std::vector<c10::optional<std::int64_t>>>();
  if (!sizes) {
    throw ConfigError("export: the shape of a tensor is not known ({}, {})",
                      value.node()->kind().toQualString(), layer_of(*value.node()));
  }
  std::vector<std::optional<std::int64_t>> found;
  for (const auto& size : *sizes) found.push_back(size ? std::optional(*size) : std::nullopt);
  return found;
}

torch::ScalarType type_of(const jit::Value& value) {
  const auto type = value.type()->cast<c10::TensorType>();
  if (type && type->scalarType()) return *type->scalarType();
  throw ConfigError("export: the type of a tensor is not known ({}, {})",
                    value.node()->kind().toQualString(), layer_of(*value.node()));
}

// As an argument of an operation that is computed now.
c10::IValue to_ivalue(const OnnxValue& value, const c10::TypePtr& type) {
  if (!value.is_list) return *value.known;
  const auto element = type->cast<c10::ListType>() ? type->cast<c10::ListType>()->getElementType()
                                                   : c10::TypePtr(c10::AnyType::get());
  c10::impl::GenericList list(element);
  for (const OnnxValue& item : value.items) list.push_back(to_ivalue(item, element));
  return list;
}

OnnxValue from_ivalue(const c10::IValue& value) {
  if (!value.isTensorList()) return {.known = value};
  OnnxValue list{.is_list = true};
  for (const torch::Tensor& tensor : value.toTensorVector())
    list.items.push_back({.known = tensor});
  return list;
}

}  // namespace

bool OnnxValue::is_known() const {
  if (is_list) return std::ranges::all_of(items, &OnnxValue::is_known);
  return known.has_value();
}

std::string OnnxBuilder::new_name(const std::string& op) {
  return fmt::format("{}_{}", op, used_[op]++);
}

std::string OnnxBuilder::add(const std::string& op, std::vector<std::string> inputs,
                             OnnxAttributes attributes) {
  return add_several(op, std::move(inputs), 1, std::move(attributes)).front();
}

std::vector<std::string> OnnxBuilder::add_several(const std::string& op,
                                                  std::vector<std::string> inputs,
                                                  std::size_t outputs, OnnxAttributes attributes) {
  const std::string name = new_name(op);
  std::vector<std::string> results;
  for (std::size_t i = 0; i < outputs; ++i) {
    results.push_back(i == 0 ? name + ".out" : fmt::format("{}.out{}", name, i));
  }
  // Optional inputs at the end may be left out.
  while (!inputs.empty() && inputs.back().empty()) inputs.pop_back();
  model_.nodes.push_back({.op = op,
                          .name = name,
                          .inputs = std::move(inputs),
                          .outputs = results,
                          .attributes = std::move(attributes)});
  return results;
}

std::string OnnxBuilder::constant(const torch::Tensor& tensor) {
  constexpr std::int64_t kFew = 16;
  const torch::Tensor own = tensor.detach().contiguous();
  std::string content;
  if (own.numel() <= kFew) {
    content = fmt::format("{}:{}:", c10::toString(own.scalar_type()), fmt::join(own.sizes(), ","));
    content.append(static_cast<const char*>(own.data_ptr()), own.nbytes());
    const auto found = small_constants_.find(content);
    if (found != small_constants_.end()) return found->second;
  }
  const std::string name = new_name("constant");
  model_.initializers.emplace_back(name, own);
  if (!content.empty()) small_constants_.emplace(content, name);
  return name;
}

std::string OnnxBuilder::constant(double number, torch::ScalarType type) {
  return constant(torch::scalar_tensor(number, torch::kFloat64).to(type));
}

std::string OnnxBuilder::integers(const Integers& numbers) {
  return constant(torch::tensor(numbers, torch::kInt64));
}

std::string OnnxBuilder::weight(const std::string& name, const torch::Tensor& tensor) {
  const auto is_same = [&](const auto& item) { return item.first == name; };
  if (std::ranges::none_of(model_.initializers, is_same)) {
    model_.initializers.emplace_back(name, tensor.detach());
  }
  return name;
}

// ReduceSum takes its axes as an input, and since operator set 18 all of them do.
std::string OnnxBuilder::reduce(const std::string& op, const std::string& input,
                                const Integers& axes, bool keep) {
  constexpr std::int64_t kAxesAreInputs = 18;
  OnnxAttributes attributes = {{"keepdims", std::int64_t{keep}}};
  if (axes.empty()) return add(op, {input}, attributes);
  if (op == "ReduceSum" || opset() >= kAxesAreInputs) {
    return add(op, {input, integers(axes)}, attributes);
  }
  attributes.emplace("axes", axes);
  return add(op, {input}, attributes);
}

std::string OnnxBuilder::cast(const std::string& input, torch::ScalarType type) {
  return add("Cast", {input}, {{"to", onnx_type(type)}});
}

std::string OnnxBuilder::reshape(const std::string& input, const Integers& sizes) {
  return add("Reshape", {input, integers(sizes)});
}

std::string OnnxBuilder::unsqueeze(const std::string& input, const Integers& axes) {
  return axes.empty() ? input : add("Unsqueeze", {input, integers(axes)});
}

std::string OnnxBuilder::transpose(const std::string& input, const Integers& order) {
  return add("Transpose", {input}, {{"perm", order}});
}

std::string OnnxBuilder::slice(const std::string& input, std::int64_t axis, std::int64_t begin,
                               std::int64_t end) {
  return add("Slice", {input, integers({begin}), integers({end}), integers({axis})});
}

std::string OnnxBuilder::gather(const std::string& input, std::int64_t axis, std::int64_t index) {
  return add("Gather", {input, constant(static_cast<double>(index), torch::kInt64)},
             {{"axis", axis}});
}

OnnxBuilder& OperatorCall::build() {
  return translation_.builder_;
}

const OnnxValue& OperatorCall::value(std::size_t input) const {
  return translation_.value(*node_.input(input));
}

bool OperatorCall::is_none(std::size_t input) const {
  const OnnxValue& found = value(input);
  return found.known && found.known->isNone();
}

bool OperatorCall::is_tensor(std::size_t input) const {
  return !is_none(input) && node_.input(input)->type()->isSubtypeOf(*c10::TensorType::get());
}

std::string OperatorCall::tensor(std::size_t input) const {
  return name_of(value(input));
}

std::string OperatorCall::tensor_or(std::size_t input, const std::string& otherwise) const {
  return is_none(input) ? otherwise : tensor(input);
}

std::string OperatorCall::operand(std::size_t input, torch::ScalarType wanted) const {
  const OnnxValue& found = value(input);
  OnnxBuilder& builder = translation_.builder_;
  if (found.known && found.known->isTensor()) {
    return builder.constant(found.known->toTensor().to(wanted));
  }
  if (is_tensor(input)) {
    const std::string name = tensor(input);
    return type(input) == wanted ? name : builder.cast(name, wanted);
  }
  if (!found.known) {  // an integer that is computed
    return wanted == torch::kInt64 ? found.name : builder.cast(found.name, wanted);
  }
  if (found.known->isInt() && wanted == torch::kInt64) {
    return builder.constant(torch::scalar_tensor(found.known->toInt(), torch::kInt64));
  }
  return builder.constant(number(input), wanted);
}

std::vector<OnnxValue> OperatorCall::list(std::size_t input) const {
  const OnnxValue& found = value(input);
  if (found.is_list) return found.items;
  refuse(fmt::format("input {} is not a list", input));
}

std::string OperatorCall::name_of(const OnnxValue& value) const {
  return translation_.name_of(value);
}

std::int64_t OperatorCall::integer(std::size_t input) const {
  const OnnxValue& found = value(input);
  if (found.known && found.known->isInt()) return found.known->toInt();
  refuse(fmt::format("input {} must be a constant", input));
}

double OperatorCall::number(std::size_t input) const {
  const OnnxValue& found = value(input);
  if (found.known && found.known->isTensor()) return found.known->toTensor().item<double>();
  if (found.known && found.known->isBool()) return found.known->toBool() ? 1 : 0;
  if (found.known && found.known->isScalar()) return found.known->toScalar().toDouble();
  refuse(fmt::format("input {} must be a constant", input));
}

bool OperatorCall::flag(std::size_t input) const {
  const OnnxValue& found = value(input);
  if (found.known && found.known->isBool()) return found.known->toBool();
  if (found.known && found.known->isInt()) return found.known->toInt() != 0;
  refuse(fmt::format("input {} must be a constant", input));
}

std::string OperatorCall::text(std::size_t input) const {
  const OnnxValue& found = value(input);
  if (found.known && found.known->isString()) return found.known->toStringRef();
  refuse(fmt::format("input {} must be a constant", input));
}

Integers OperatorCall::integers(std::size_t input) const {
  const OnnxValue& found = value(input);
  if (!found.is_known()) refuse(fmt::format("input {} must be a constant", input));
  if (!found.is_list) return found.known->isNone() ? Integers() : list_of(*found.known);
  Integers numbers;
  for (const OnnxValue& item : found.items) numbers.push_back(item.known->toInt());
  return numbers;
}

std::string OperatorCall::shape(std::size_t input) const {
  OnnxBuilder& builder = translation_.builder_;
  if (value(input).is_known()) return builder.integers(integers(input));
  std::vector<std::string> parts;
  for (const OnnxValue& item : list(input)) {
    parts.push_back(item.known ? builder.integers({item.known->toInt()})
                               : builder.reshape(item.name, {1}));
  }
  return builder.add("Concat", parts, {{"axis", std::int64_t{0}}});
}

std::string OperatorCall::integer_tensor(std::size_t input) const {
  return operand(input, torch::kInt64);
}

std::int64_t OperatorCall::rank(std::size_t input) const {
  return static_cast<std::int64_t>(sizes(input).size());
}

std::int64_t OperatorCall::dimension(std::size_t argument, std::int64_t rank) const {
  const std::int64_t given = integer(argument);
  return given < 0 ? given + rank : given;
}

torch::ScalarType OperatorCall::type(std::size_t input) const {
  const OnnxValue& found = value(input);
  if (found.known && found.known->isTensor()) return found.known->toTensor().scalar_type();
  if (found.weight) return found.weight->scalar_type();
  return type_of(*node_.input(input));
}

std::vector<std::optional<std::int64_t>> OperatorCall::sizes(std::size_t input) const {
  const OnnxValue& found = value(input);
  const auto known = [](const torch::Tensor& tensor) {
    return std::vector<std::optional<std::int64_t>>(tensor.sizes().begin(), tensor.sizes().end());
  };
  if (found.known && found.known->isTensor()) return known(found.known->toTensor());
  if (found.weight) return known(*found.weight);
  return sizes_of(*node_.input(input));
}

std::int64_t OperatorCall::size(std::size_t input, std::int64_t dimension) const {
  const auto found = sizes(input).at(static_cast<std::size_t>(dimension));
  if (found) return *found;
  refuse(fmt::format("dimension {} of input {} has the size of the batch", dimension, input));
}

torch::ScalarType OperatorCall::output_type(std::size_t output) const {
  return type_of(*node_.output(output));
}

std::vector<std::optional<std::int64_t>> OperatorCall::output_sizes(std::size_t output) const {
  return sizes_of(*node_.output(output));
}

bool OperatorCall::is_used(std::size_t output) const {
  return node_.output(output)->hasUses();
}

void OperatorCall::result(std::string name, std::size_t output) {
  result(OnnxValue{.name = std::move(name)}, output);
}

void OperatorCall::result(OnnxValue value, std::size_t output) {
  translation_.set(*node_.output(output), std::move(value));
}

void OperatorCall::refuse(const std::string& why) const {
  throw ConfigError(
      "export: ONNX: {} ({}) cannot be translated: {}; replace this operation in the model, or "
      "export it as TorchScript",
      node_.kind().toQualString(), layer_of(node_), why);
}

const Translators& translators() {
  static const Translators all = [] {
    Translators made;
    add_arithmetic(made);
    add_layers(made);
    add_shapes(made);
    add_recurrent(made);
    return made;
  }();
  return all;
}

Translation::Translation(const Trace& trace, std::int64_t opset) : trace_(trace), builder_(model_) {
  model_.opset = opset;
}

OnnxModel Translation::run() {
  const auto inputs = trace_.graph->inputs();
  for (std::size_t i = 0; i < trace_.inputs.size(); ++i) {
    const jit::Value& input = *inputs[i + 1];  // the first one is the module
    model_.inputs.push_back(port_of(trace_.inputs[i], input));
    set(input, {.name = trace_.inputs[i]});
  }
  for (const jit::Node* const node : trace_.graph->nodes()) translate(*node);
  add_outputs();
  return std::move(model_);
}

void Translation::translate(const jit::Node& node) {
  if (translate_structure(node) || fold(node)) return;
  const auto found = translators().find(node.kind().toQualString());
  OperatorCall call(*this, node);
  if (found == translators().end()) call.refuse("Lockstep has no translation of this operator");
  found->second(call);
}

bool Translation::translate_structure(const jit::Node& node) {
  switch (node.kind()) {
    case c10::prim::Constant:
      set(*node.output(), from_ivalue(*jit::toIValue(node.output())));
      return true;
    case c10::prim::GetAttr: {
      const std::string name = weight_name(*node.output());
      // A module inside the module has no value of its own.
      if (!node.output()->type()->isSubtypeOf(*c10::TensorType::get())) return true;
      jit::Module owner = trace_.weights;
      std::string rest = name;
      for (auto dot = rest.find('.'); dot != std::string::npos; dot = rest.find('.')) {
        owner = owner.attr(rest.substr(0, dot)).toModule();
        rest = rest.substr(dot + 1);
      }
      set(*node.output(), {.name = name, .weight = owner.attr(rest).toTensor()});
      return true;
    }
    case c10::prim::ListConstruct:
    case c10::prim::TupleConstruct: {
      OnnxValue list{.is_list = true};
      for (const jit::Value* const input : node.inputs()) list.items.push_back(value(*input));
      set(*node.output(), std::move(list));
      return true;
    }
    case c10::prim::ListUnpack:
    case c10::prim::TupleUnpack: {
      const OnnxValue list = value(*node.input());
      for (std::size_t i = 0; i < node.outputs().size(); ++i) {
        set(*node.output(i), list.items.at(i));
      }
      return true;
    }
    default:
      return false;
  }
}

bool Translation::fold(const jit::Node& node) {
  const std::string kind = node.kind().toQualString();
  static const std::vector<std::string> random = {"aten::rand",      "aten::randn",
                                                  "aten::rand_like", "aten::randn_like",
                                                  "aten::bernoulli", "aten::randint"};
  if (!kind.starts_with("aten::") || std::ranges::find(random, kind) != random.end()) return false;
  jit::Stack stack;
  for (const jit::Value* const input : node.inputs()) {
    const OnnxValue& found = value(*input);
    if (!found.is_known()) return false;
    stack.push_back(to_ivalue(found, input->type()));
  }
  const torch::NoGradGuard no_grad;
  jit::Operation operation = node.getOperation();
  operation(stack);
  // Numbers that are not set yet.
  if (kind == "aten::empty" || kind == "aten::empty_like") stack.front().toTensor().zero_();
  for (std::size_t i = 0; i < node.outputs().size(); ++i)
    set(*node.output(i), from_ivalue(stack[i]));
  return true;
}

void Translation::add_outputs() {
  const jit::Value& returned = *trace_.graph->outputs().front();
  const OnnxValue all = value(returned);
  const std::vector<OnnxValue> found = all.is_list ? all.items : std::vector{all};
  std::vector<const jit::Value*> values = {&returned};
  if (all.is_list) {
    const auto parts = returned.node()->inputs();
    values.assign(parts.begin(), parts.end());
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::string& name = trace_.outputs[i];
    model_.nodes.push_back({.op = "Identity",
                            .name = "result_" + name,
                            .inputs = {name_of(found[i])},
                            .outputs = {name}});
    model_.outputs.push_back(port_of(name, *values[i]));
  }
}

// Inputs differ only in the size of the batch, so a symbol in the type of an input is that size.
bool Translation::is_batch_size(const c10::ShapeSymbol& size) const {
  for (const jit::Value* const input : trace_.graph->inputs().slice(1)) {
    const auto sizes = input->type()->expectRef<c10::TensorType>().symbolic_sizes().sizes();
    if (sizes && std::ranges::find(*sizes, size) != sizes->end()) return true;
  }
  return false;
}

Port Translation::port_of(const std::string& name, const jit::Value& value) const {
  Port port{.name = name, .type = type_of(value), .sizes = {}};
  const auto sizes = sizes_of(value);
  const auto& symbols = value.type()->expectRef<c10::TensorType>().symbolic_sizes();
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d]) {
      port.sizes.emplace_back(*sizes[d]);
    } else if (is_batch_size(symbols[d])) {
      port.sizes.emplace_back(kBatchSize);
    } else {
      port.sizes.emplace_back(other_size_name(name, d));
    }
  }
  return port;
}

std::string Translation::name_of(const OnnxValue& value) {
  if (value.weight) return builder_.weight(value.name, *value.weight);
  if (!value.name.empty()) return value.name;
  if (value.known && value.known->isTensor()) return builder_.constant(value.known->toTensor());
  throw ConfigError("export: ONNX: expected a tensor, got {}",
                    value.known ? value.known->tagKind() : "a list");
}

const OnnxValue& Translation::value(const jit::Value& value) const {
  const auto found = values_.find(&value);
  if (found == values_.end()) {
    throw ConfigError("export: ONNX: %{} of {} has no value", value.debugName(),
                      value.node()->kind().toQualString());
  }
  return found->second;
}

void Translation::set(const jit::Value& value, OnnxValue found) {
  values_[&value] = std::move(found);
}

}  // namespace lockstep::exporting
