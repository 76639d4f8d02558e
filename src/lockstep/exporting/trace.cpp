#include "lockstep/exporting/trace.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include "lockstep/base/error.h"
#include "lockstep/compute/switches.h"
#include "lockstep/exporting/dynamic_batch.h"
#include "lockstep/exporting/example.h"

namespace lockstep::exporting {
namespace {

namespace jit = torch::jit;

// Batches of one sample may be handled in another way, so they are not used for tracing.
constexpr std::int64_t kTracedSize = 2, kOtherTracedSize = 3;

// LibTorch's warnings about tracing are for Python. What goes wrong is found when outputs are
// compared.
class WithoutTracerWarnings {
 public:
  WithoutTracerWarnings() : before_(jit::tracer::getTracerStateWarnMode().exchange(false)) {}
  ~WithoutTracerWarnings() { jit::tracer::getTracerStateWarnMode() = before_; }
  WithoutTracerWarnings(const WithoutTracerWarnings&) = delete;
  WithoutTracerWarnings& operator=(const WithoutTracerWarnings&) = delete;

 private:
  bool before_;
};

// Modules inside of each other, as the names of the weights say: "layer1.0.weight" is in "0" of
// "layer1".
class WeightTree {
 public:
  WeightTree() : root_(make()) { modules_.emplace("", root_); }

  void add(const std::string& name, const torch::Tensor& tensor, bool is_buffer) {
    const auto dot = name.rfind('.');
    const bool is_nested = dot != std::string::npos;
    const std::string owner = is_nested ? name.substr(0, dot) : "";
    module(owner).register_parameter(is_nested ? name.substr(dot + 1) : name, tensor, is_buffer);
  }

  const jit::Module& root() const { return root_; }

 private:
  jit::Module make() const {
    jit::Module made(c10::QualifiedName("__torch__.lockstep.Module"), unit_, /*shouldMangle=*/true);
    made.register_attribute("training", c10::BoolType::get(), false);
    return made;
  }

  jit::Module& module(const std::string& path) {
    const auto found = modules_.find(path);
    if (found != modules_.end()) return found->second;
    const auto dot = path.rfind('.');
    const bool is_nested = dot != std::string::npos;
    jit::Module& parent = module(is_nested ? path.substr(0, dot) : "");
    jit::Module child = make();
    parent.register_module(is_nested ? path.substr(dot + 1) : path, child);
    return modules_.emplace(path, child).first->second;
  }

  std::shared_ptr<jit::CompilationUnit> unit_ = std::make_shared<jit::CompilationUnit>();
  jit::Module root_;
  std::map<std::string, jit::Module> modules_;
};

jit::Module weights_of(const Model& model) {
  WeightTree tree;
  for (const auto& [name, tensor] : model.parameters()) tree.add(name, tensor, /*is_buffer=*/false);
  for (const auto& [name, tensor] : model.buffers()) tree.add(name, tensor, /*is_buffer=*/true);
  return tree.root();
}

void append_outputs(const c10::IValue& value, const std::string& name, NamedOutputs& outputs) {
  const auto inner = [&](const std::string& part) {
    return name.empty() ? part : name + "." + part;
  };
  if (value.isTensor()) {
    outputs.tensors.push_back(value.toTensor());
    outputs.names.push_back(name);
  } else if (value.isTuple()) {
    for (const auto& part : value.toTupleRef().elements()) append_outputs(part, name, outputs);
  } else if (value.isList()) {
    for (const c10::IValue& part : value.toListRef()) append_outputs(part, name, outputs);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      append_outputs(entry.value(), inner(entry.key().toStringRef()), outputs);
    }
  } else {
    throw ConfigError("export: the model returned a {}, expected tensors", value.tagKind());
  }
}

// A network that is TorchScript already. LibTorch would put its graph, with conditions and loops,
// into the trace as it is. Run by the interpreter, its operations are recorded one by one.
NamedOutputs call_script(const jit::Module& module, const Batch& inputs,
                         const std::vector<std::string>& names) {
  const jit::Method method = module.get_method("forward");
  const auto& function = method.function();
  const auto graph = jit::toGraphFunction(function).graph()->copy();
  jit::Inline(*graph);
  jit::Stack stack = {module._ivalue()};
  const auto& arguments = function.getSchema().arguments();
  const bool has_argument = arguments.size() > 1;
  if (has_argument && arguments[1].type()->kind() == c10::TypeKind::DictType) {
    c10::Dict<std::string, torch::Tensor> dictionary;
    for (const auto& [key, tensor] : inputs) dictionary.insert(key, tensor);
    stack.emplace_back(std::move(dictionary));
  } else if (has_argument && arguments[1].type()->kind() == c10::TypeKind::ListType) {
    c10::List<torch::Tensor> list;
    for (const auto& [key, tensor] : inputs) list.push_back(tensor);
    stack.emplace_back(std::move(list));
  } else {
    for (const auto& [key, tensor] : inputs) stack.emplace_back(tensor);
  }
  for (std::size_t i = stack.size(); i < arguments.size(); ++i) {
    if (!arguments[i].default_value()) break;
    stack.push_back(*arguments[i].default_value());
  }
  if (stack.size() != arguments.size()) {
    throw ConfigError("export: the model takes {} inputs, got {}", arguments.size() - 1,
                      stack.size() - 1);
  }
  jit::InterpreterState(jit::Code(graph, "forward")).run(stack);
  NamedOutputs outputs;
  append_outputs(stack.back(), "", outputs);
  for (std::size_t i = 0; i < outputs.names.size(); ++i) {
    if (!names.empty() && names.size() == outputs.names.size()) outputs.names[i] = names[i];
    if (!outputs.names[i].empty()) continue;
    outputs.names[i] = outputs.names.size() == 1 ? "output" : fmt::format("output_{}", i);
  }
  return outputs;
}

bool is_identifier(const std::string& name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && is_letter(name.front()) &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

struct Recorded {
  std::shared_ptr<jit::Graph> graph;
  std::vector<std::string> outputs;
};

Recorded record(const Model& model, jit::Module weights, const Batch& inputs,
                const TraceOptions& options) {
  std::vector<std::string> names;
  jit::Stack stack;
  for (const auto& [key, tensor] : inputs) {
    names.push_back(key);
    stack.emplace_back(tensor);
  }
  Recorded recorded;
  const auto run = [&](const jit::Stack& given) -> jit::Stack {
    Batch own;
    for (std::size_t i = 0; i < names.size(); ++i) own.set(names[i], given[i].toTensor());
    const NamedOutputs outputs =
        model.script_module() != nullptr
            ? call_script(*model.script_module(), own, options.output_names)
            : call(model, own, options.output_names);
    recorded.outputs = outputs.names;
    if (outputs.tensors.size() == 1) return {outputs.tensors.front()};
    std::vector<c10::IValue> all(outputs.tensors.begin(), outputs.tensors.end());
    return {c10::ivalue::Tuple::create(std::move(all))};
  };
  // The names are only for people who read the graph; LibTorch accepts identifiers.
  std::vector<std::string> argument_names;
  for (const std::string& name : names) {
    argument_names.push_back(is_identifier(name) ? name : "input");
  }
  const auto no_name = [](const torch::Tensor&) { return std::string(); };
  const auto [state, outputs] =
      jit::tracer::trace(std::move(stack), run, no_name, /*strict=*/true,
                         /*force_outplace=*/options.out_of_place, &weights, argument_names);
  recorded.graph = state->graph;
  jit::EliminateDeadCode(recorded.graph);
  return recorded;
}

// The number of the first input with one row per sample.
std::size_t batched_input(const Batch& inputs) {
  std::size_t number = 0;
  for (const auto& [key, tensor] : inputs) {
    if (tensor.dim() > 0 && tensor.size(0) == inputs.size()) return number;
    ++number;
  }
  throw ConfigError("export: no input has a dimension for the batch");
}

}  // namespace

Trace trace(const Model& model, const Batch& example, const TraceOptions& options) {
  check_example(example);
  const EvaluationMode mode(model);
  const WithoutTracerWarnings quiet;
  // A planned Sequential does its work in one step, which LibTorch does not see.
  const compute::WithoutSpeedup no_plan(compute::Speedup::kPlan);
  const auto recorded = [&](const jit::Module& weights, const Batch& inputs) {
    try {
      return record(model, weights, inputs, options);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw ConfigError("export: the model cannot be traced: {}", message_of(error));
    }
  };
  Trace result;
  result.weights = weights_of(model);
  for (const auto& [key, tensor] : example) result.inputs.push_back(key);
  if (!options.dynamic_batch) {
    auto [graph, outputs] = recorded(result.weights, example);
    result.graph = std::move(graph);
    result.outputs = std::move(outputs);
    return result;
  }
  const Batch inputs = with_batch_size(example, kTracedSize);
  auto [graph, outputs] = recorded(result.weights, inputs);
  const auto other = recorded(result.weights, with_batch_size(example, kOtherTracedSize));
  make_batch_dynamic({.graph = graph, .batch_size = kTracedSize},
                     {.graph = other.graph, .batch_size = kOtherTracedSize}, batched_input(inputs));
  result.graph = std::move(graph);
  result.outputs = std::move(outputs);
  return result;
}

std::string weight_name(const jit::Value& value) {
  const jit::Node& node = *value.node();
  if (node.kind() != c10::prim::GetAttr) return "";
  const std::string owner = weight_name(*node.input());
  const std::string name = node.s(c10::attr::name);
  return owner.empty() ? name : owner + "." + name;
}

std::string layer_of(const jit::Node& node) {
  for (const jit::Node* at = &node; at->kind() != c10::prim::Param; at = at->prev()) {
    if (at->kind() == c10::prim::GetAttr) continue;
    for (const jit::Value* const input : at->inputs()) {
      const std::string name = weight_name(*input);
      if (name.empty()) continue;
      const auto dot = name.rfind('.');
      const std::string layer = dot == std::string::npos ? name : name.substr(0, dot);
      return fmt::format("{}layer '{}'", at == &node ? "" : "after ", layer);
    }
  }
  return "before the first layer with weights";
}

}  // namespace lockstep::exporting
