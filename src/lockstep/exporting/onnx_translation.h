// From a traced graph to ONNX: each of LibTorch's operators has a translator, a function that adds
// nodes of ONNX. The translators are in onnx_<family>.cpp.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/ir/ir.h>

#include "lockstep/exporting/onnx_model.h"
#include "lockstep/exporting/trace.h"

namespace lockstep::exporting {

using Integers = std::vector<std::int64_t>;

// Adds nodes and initializers to a model, with new names.
class OnnxBuilder {
 public:
  explicit OnnxBuilder(OnnxModel& model) : model_(model) {}

  std::int64_t opset() const { return model_.opset; }

  // Adds a node with one output, or with several ones, and returns their names.
  std::string add(const std::string& op, std::vector<std::string> inputs,
                  OnnxAttributes attributes = {});
  std::vector<std::string> add_several(const std::string& op, std::vector<std::string> inputs,
                                       std::size_t outputs, OnnxAttributes attributes = {});
  // An initializer. The name of one with few numbers is the same for the same numbers.
  std::string constant(const torch::Tensor& tensor);
  std::string constant(double number, torch::ScalarType type);  // without dimensions
  std::string integers(const Integers& numbers);                // of one dimension
  // An initializer with this name. It is written once.
  std::string weight(const std::string& name, const torch::Tensor& tensor);

  // Operations whose form depends on the operator set, or that are used often.
  std::string reduce(const std::string& op, const std::string& input, const Integers& axes,
                     bool keep);
  std::string cast(const std::string& input, torch::ScalarType type);
  std::string reshape(const std::string& input, const Integers& sizes);
  std::string unsqueeze(const std::string& input, const Integers& axes);
  std::string transpose(const std::string& input, const Integers& order);
  std::string slice(const std::string& input, std::int64_t axis, std::int64_t begin,
                    std::int64_t end);
  std::string gather(const std::string& input, std::int64_t axis, std::int64_t index);

 private:
  std::string new_name(const std::string& op);

  OnnxModel& model_;
  std::map<std::string, int> used_;
  std::map<std::string, std::string> small_constants_;  // by their content
};

// The counterpart in ONNX of a value of the traced graph.
struct OnnxValue {
  std::string name = {};                     // of a tensor, or of an integer that is computed
  std::optional<c10::IValue> known = {};     // a constant: a number, text, None, or a tensor
  std::optional<torch::Tensor> weight = {};  // the numbers of a weight
  bool is_list = false;
  std::vector<OnnxValue> items = {};  // of a list or a tuple
  bool is_zero = false;               // a tensor of zeros
  // Sequences of several lengths, as nn::utils::rnn packs them. ONNX has them padded, [tokens,
  // batch, features], with their lengths.
  bool is_packed = false;
  std::string lengths = {};

  bool is_known() const;
};

class Translation;

// One operation of the traced graph, while it is translated.
class OperatorCall {
 public:
  OperatorCall(Translation& translation, const torch::jit::Node& node)
      : translation_(translation), node_(node) {}

  const torch::jit::Node& node() const { return node_; }
  OnnxBuilder& build();

  std::size_t count() const { return node_.inputs().size(); }
  const OnnxValue& value(std::size_t input) const;
  bool is_none(std::size_t input) const;
  bool is_tensor(std::size_t input) const;  // else a number, a list or None
  // The name of a tensor. Constants become initializers.
  std::string tensor(std::size_t input) const;
  std::string tensor_or(std::size_t input, const std::string& otherwise) const;  // None
  // A tensor or a number, converted to a type.
  std::string operand(std::size_t input, torch::ScalarType type) const;
  std::vector<OnnxValue> list(std::size_t input) const;
  std::string name_of(const OnnxValue& value) const;  // of a tensor in a list

  // Constants. Anything else is refused.
  std::int64_t integer(std::size_t input) const;
  double number(std::size_t input) const;
  bool flag(std::size_t input) const;
  std::string text(std::size_t input) const;
  Integers integers(std::size_t input) const;
  // A list of integers of which some may be computed: the name of a tensor of one dimension.
  std::string shape(std::size_t input) const;
  // An integer as a tensor without dimensions.
  std::string integer_tensor(std::size_t input) const;

  std::int64_t rank(std::size_t input) const;
  // A dimension counted from 0. A negative one counts from the end.
  std::int64_t dimension(std::size_t argument, std::int64_t rank) const;
  std::int64_t dimension(std::size_t argument) const { return dimension(argument, rank(0)); }
  torch::ScalarType type(std::size_t input) const;
  std::vector<std::optional<std::int64_t>> sizes(std::size_t input) const;
  std::int64_t size(std::size_t input, std::int64_t dimension) const;  // refused if not known
  torch::ScalarType output_type(std::size_t output = 0) const;
  std::vector<std::optional<std::int64_t>> output_sizes(std::size_t output = 0) const;
  bool is_used(std::size_t output) const;

  void result(std::string name, std::size_t output = 0);
  void result(OnnxValue value, std::size_t output = 0);

  [[noreturn]] void refuse(const std::string& why) const;

 private:
  Translation& translation_;
  const torch::jit::Node& node_;
};

using Translator = void (*)(OperatorCall& call);
using Translators = std::map<std::string, Translator, std::less<>>;

// Gives several operators the same translator.
inline void add(Translators& to, std::initializer_list<const char*> names, Translator translator) {
  for (const char* const name : names) to.emplace(name, translator);
}

// Each adds the translators of one family, by the names of LibTorch's operators ("aten::relu").
void add_arithmetic(Translators& translators);
void add_layers(Translators& translators);
void add_shapes(Translators& translators);
void add_recurrent(Translators& translators);
const Translators& translators();

class Translation {
 public:
  Translation(const Trace& trace, std::int64_t opset);

  // Throws ConfigError, which names the operation and its layer, if there is no translator.
  OnnxModel run();

 private:
  friend class OperatorCall;

  void translate(const torch::jit::Node& node);
  bool translate_structure(const torch::jit::Node& node);  // lists, constants, attributes
  bool fold(const torch::jit::Node& node);                 // computes an operation on constants now
  void add_outputs();
  bool is_batch_size(const c10::ShapeSymbol& size) const;
  Port port_of(const std::string& name, const torch::jit::Value& value) const;
  std::string name_of(const OnnxValue& value);
  const OnnxValue& value(const torch::jit::Value& value) const;
  void set(const torch::jit::Value& value, OnnxValue found);

  const Trace& trace_;
  OnnxModel model_;
  OnnxBuilder builder_;
  std::unordered_map<const torch::jit::Value*, OnnxValue> values_;
};

}  // namespace lockstep::exporting
