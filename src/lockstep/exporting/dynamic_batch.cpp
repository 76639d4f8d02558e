#include "lockstep/exporting/dynamic_batch.h"

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/csrc/jit/ir/constants.h>

#include "lockstep/base/error.h"
#include "lockstep/exporting/trace.h"

namespace lockstep::exporting {
namespace {

namespace jit = torch::jit;

[[noreturn]] void refuse(const jit::Node& node, const std::string& why) {
  throw ConfigError(
      "export: the model depends on the size of the batch in a way that a file cannot express: {} "
      "({}, {}); export it for one size of a batch: dynamic_batch = false, or --no-dynamic-batch",
      why, node.kind().toQualString(), layer_of(node));
}

// n = slope * (size of the batch) + offset
struct Linear {
  std::int64_t slope = 0;
  std::int64_t offset = 0;
};

class Comparison {
 public:
  Comparison(const TracedGraph& graph, const TracedGraph& other, std::size_t batched_input)
      : graph_(*graph.graph),
        other_(*other.graph),
        size_(graph.batch_size),
        other_size_(other.batch_size),
        batched_input_(batched_input) {}

  void run() {
    pair_values(graph_.inputs(), other_.inputs());
    auto other = other_.nodes().begin();
    std::vector<std::pair<jit::Node*, Linear>> replaced;
    for (jit::Node* const node : graph_.nodes()) {
      if (other == other_.nodes().end()) refuse(*node, "one size needs more operations");
      compare(*node, **other, replaced);
      ++other;
    }
    if (other != other_.nodes().end()) refuse(**other, "one size needs more operations");
    for (const auto& [node, linear] : replaced) replace(*node, linear);
  }

 private:
  template <typename Values, typename Others>
  void pair_values(const Values& own, const Others& others) {
    for (std::size_t i = 0; i < own.size(); ++i) {
      same_.emplace(others[i], own[i]);
      leave_out_sizes(*own[i], *others[i]);
    }
  }

  void leave_out_sizes(jit::Value& value, const jit::Value& other) const {
    const auto type = value.type()->cast<c10::TensorType>();
    const auto other_type = other.type()->cast<c10::TensorType>();
    if (!type || !other_type) return;
    const auto sizes = type->sizes().sizes(), other_sizes = other_type->sizes().sizes();
    if (!sizes || !other_sizes) return;
    if (sizes->size() != other_sizes->size()) refuse(*value.node(), "the number of dimensions");
    std::vector<c10::ShapeSymbol> kept;
    for (std::size_t i = 0; i < sizes->size(); ++i) {
      const auto size = (*sizes)[i], other_size = (*other_sizes)[i];
      if (size && size == other_size) {
        kept.push_back(c10::ShapeSymbol::fromStaticSize(*size));
      } else {
        const bool is_batch = size == size_ && other_size == other_size_;
        kept.push_back(is_batch ? symbol_ : c10::ShapeSymbol::newSymbol());
      }
    }
    value.setType(type->withSymbolicShapes(c10::SymbolicShape(std::move(kept))));
  }

  void compare(jit::Node& node, const jit::Node& other,
               std::vector<std::pair<jit::Node*, Linear>>& replaced) {
    if (node.kind() != other.kind() || node.inputs().size() != other.inputs().size() ||
        node.outputs().size() != other.outputs().size() || !node.blocks().empty()) {
      refuse(node, fmt::format("another size needs {} here", other.kind().toQualString()));
    }
    for (std::size_t i = 0; i < node.inputs().size(); ++i) {
      const auto found = same_.find(other.input(i));
      if (found == same_.end() || found->second != node.input(i)) {
        refuse(node, "another size needs another input here");
      }
    }
    if (node.kind() == c10::prim::Constant) {
      if (const auto linear = compare_constants(node, other)) replaced.emplace_back(&node, *linear);
    }
    pair_values(node.outputs(), other.outputs());
  }

  // How the number depends on the size, or nothing if it does not.
  std::optional<Linear> compare_constants(const jit::Node& node, const jit::Node& other) const {
    const auto value = jit::toIValue(node.output()), other_value = jit::toIValue(other.output());
    if (!value || !other_value) return std::nullopt;
    if (value->isTensor() && other_value->isTensor()) {
      const torch::Tensor own = value->toTensor(), others = other_value->toTensor();
      if (own.defined() == others.defined() &&
          (!own.defined() || (own.sizes() == others.sizes() && torch::equal(own, others)) ||
           has_nan(own))) {
        return std::nullopt;
      }
      refuse(node, "a tensor that the model makes from numbers has other values");
    }
    if (value->isInt() && other_value->isInt()) {
      const std::int64_t own = value->toInt(), others = other_value->toInt();
      if (own == others) return std::nullopt;
      const std::int64_t step = other_size_ - size_;
      if ((others - own) % step != 0) refuse(node, fmt::format("{} becomes {}", own, others));
      const std::int64_t slope = (others - own) / step;
      return Linear{.slope = slope, .offset = own - slope * size_};
    }
    if (*value == *other_value) return std::nullopt;
    refuse(node, "a number that is not an integer has another value");
  }

  static bool has_nan(const torch::Tensor& tensor) {
    return tensor.is_floating_point() && tensor.isnan().any().item<bool>();
  }

  void replace(jit::Node& constant, const Linear& linear) {
    const jit::WithInsertPoint here(&constant);
    jit::Value* number = batch_size();
    if (linear.slope != 1) number = graph_.insert(c10::aten::mul, {number, linear.slope});
    if (linear.offset != 0) number = graph_.insert(c10::aten::add, {number, linear.offset});
    constant.output()->replaceAllUsesWith(number);
    constant.destroy();
  }

  // Computed once, before all other operations.
  jit::Value* batch_size() {
    if (computed_ != nullptr) return computed_;
    const jit::WithInsertPoint here(*graph_.nodes().begin());
    // Input 0 is the module.
    computed_ = graph_.insert(c10::aten::size, {graph_.inputs()[batched_input_ + 1], 0});
    return computed_;
  }

  jit::Graph& graph_;
  jit::Graph& other_;
  std::int64_t size_, other_size_;
  std::size_t batched_input_;
  const c10::ShapeSymbol symbol_ = c10::ShapeSymbol::newSymbol();  // the size of the batch in types
  std::unordered_map<const jit::Value*, const jit::Value*> same_;  // of the other graph to this one
  jit::Value* computed_ = nullptr;
};

}  // namespace

void make_batch_dynamic(const TracedGraph& graph, const TracedGraph& other,
                        std::size_t batched_input) {
  Comparison(graph, other, batched_input).run();
}

}  // namespace lockstep::exporting
