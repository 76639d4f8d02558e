// Translators of LSTM and GRU, with and without sequences of several lengths.
#include <algorithm>

#include "lockstep/exporting/onnx_translation.h"

namespace lockstep::exporting {
namespace {

using Call = OperatorCall;

struct CellKind {
  const char* op;
  std::vector<std::int64_t> gates;  // LibTorch's gates in the order of ONNX
  OnnxAttributes attributes = {};
  bool has_cell_state = false;
};

CellKind lstm_kind() {
  // LibTorch: input, forget, cell, output. ONNX: input, output, forget, cell.
  return {.op = "LSTM", .gates = {0, 3, 1, 2}, .has_cell_state = true};
}

CellKind gru_kind() {
  // LibTorch: reset, update, new. ONNX: update, reset, new.
  return {
      .op = "GRU", .gates = {1, 0, 2}, .attributes = {{"linear_before_reset", std::int64_t{1}}}};
}

torch::Tensor reordered(const torch::Tensor& weight, const std::vector<std::int64_t>& gates) {
  const auto parts = weight.chunk(static_cast<std::int64_t>(gates.size()), 0);
  std::vector<torch::Tensor> sorted;
  for (const std::int64_t gate : gates) sorted.push_back(parts[static_cast<std::size_t>(gate)]);
  return torch::cat(sorted);
}

// Where the arguments are: (input, hx, params, has_biases, num_layers, dropout, train,
// bidirectional, batch_first) or (data, batch_sizes, hx, params, has_biases, num_layers, dropout,
// train, bidirectional).
class Recurrence {
 public:
  Recurrence(Call& call, CellKind kind) : call_(call), kind_(std::move(kind)) {
    is_packed_ = call.value(0).is_packed;
    const std::size_t first = is_packed_ ? 2 : 1;
    const OnnxValue states = call.value(first);
    hidden_ = states.is_list ? states.items.at(0) : states;
    if (states.is_list && states.items.size() > 1) cell_ = states.items[1];
    for (const OnnxValue& weight : call.list(first + 1)) {
      if (!weight.weight) call.refuse("a weight is computed by another operation");
      weights_.push_back(*weight.weight);
    }
    has_biases_ = call.flag(first + 2);
    layers_ = call.integer(first + 3);
    if (call.number(first + 4) > 0 && call.flag(first + 5)) call.refuse("it is in training mode");
    directions_ = call.flag(first + 6) ? 2 : 1;
    is_batch_first_ = !is_packed_ && call.flag(first + 7);
    const std::size_t expected =
        static_cast<std::size_t>(layers_ * directions_) * (has_biases_ ? 4 : 2);
    if (weights_.size() != expected) call.refuse("it has a projection");
  }

  void translate() {
    OnnxBuilder& build = call_.build();
    std::string x = call_.tensor(0);
    if (is_batch_first_) x = build.transpose(x, {1, 0, 2});
    std::vector<std::string> hidden, cell;
    for (std::int64_t layer = 0; layer < layers_; ++layer) {
      const auto outputs = add_layer(layer, x);
      // [tokens, directions, batch, features] to [tokens, batch, directions * features]
      x = build.reshape(build.transpose(outputs[0], {0, 2, 1, 3}),
                        {0, 0, directions_ * features()});
      hidden.push_back(outputs[1]);
      if (kind_.has_cell_state) cell.push_back(outputs[2]);
    }
    const auto states = [&](const std::vector<std::string>& parts) {
      return parts.size() == 1 ? parts.front()
                               : build.add("Concat", parts, {{"axis", std::int64_t{0}}});
    };
    if (is_packed_) {
      call_.result(OnnxValue{.name = x, .is_packed = true, .lengths = call_.value(0).lengths}, 0);
    } else {
      call_.result(is_batch_first_ ? build.transpose(x, {1, 0, 2}) : x, 0);
    }
    call_.result(states(hidden), 1);
    if (kind_.has_cell_state) call_.result(states(cell), 2);
  }

 private:
  std::int64_t features() const { return weights_[1].size(1); }

  // The weights of a layer: input, state, bias of the input, bias of the state, for each direction.
  const torch::Tensor& weight(std::int64_t layer, std::int64_t direction, std::size_t which) const {
    const std::size_t each = has_biases_ ? 4 : 2;
    return weights_[static_cast<std::size_t>(layer * directions_ + direction) * each + which];
  }

  std::string stacked(std::int64_t layer, std::size_t which) {
    std::vector<torch::Tensor> parts;
    for (std::int64_t d = 0; d < directions_; ++d) {
      parts.push_back(reordered(weight(layer, d, which), kind_.gates));
    }
    return call_.build().constant(torch::stack(parts));
  }

  std::string biases(std::int64_t layer) {
    if (!has_biases_) return "";
    std::vector<torch::Tensor> parts;
    for (std::int64_t d = 0; d < directions_; ++d) {
      parts.push_back(torch::cat({reordered(weight(layer, d, 2), kind_.gates),
                                  reordered(weight(layer, d, 3), kind_.gates)}));
    }
    return call_.build().constant(torch::stack(parts));
  }

  // The first states of a layer. ONNX begins with zeros if there are none.
  std::string first_state(const OnnxValue& state, std::int64_t layer) {
    const bool is_zero = state.is_zero || (state.known && state.known->isTensor() &&
                                           !state.known->toTensor().any().item<bool>());
    if (is_zero) return "";
    const std::string all = call_.name_of(state);
    if (layers_ == 1) return all;
    return call_.build().slice(all, 0, layer * directions_, (layer + 1) * directions_);
  }

  std::vector<std::string> add_layer(std::int64_t layer, const std::string& x) {
    OnnxAttributes attributes = kind_.attributes;
    attributes.emplace("hidden_size", features());
    attributes.emplace("direction", std::string(directions_ == 2 ? "bidirectional" : "forward"));
    std::vector<std::string> inputs = {x,
                                       stacked(layer, 0),
                                       stacked(layer, 1),
                                       biases(layer),
                                       is_packed_ ? call_.value(0).lengths : "",
                                       first_state(hidden_, layer)};
    if (kind_.has_cell_state) inputs.push_back(first_state(cell_, layer));
    return call_.build().add_several(kind_.op, inputs, kind_.has_cell_state ? 3 : 2, attributes);
  }

  Call& call_;
  CellKind kind_;
  OnnxValue hidden_, cell_;
  std::vector<torch::Tensor> weights_;
  bool has_biases_ = true;
  bool is_packed_ = false;
  bool is_batch_first_ = false;
  std::int64_t layers_ = 1;
  std::int64_t directions_ = 1;
};

// (input, lengths, batch_first) to (data, batch_sizes). ONNX keeps the padding and takes the
// lengths.
void pack(Call& call) {
  OnnxBuilder& build = call.build();
  const std::string x = call.flag(2) ? build.transpose(call.tensor(0), {1, 0, 2}) : call.tensor(0);
  const OnnxValue packed{
      .name = x, .is_packed = true, .lengths = build.cast(call.tensor(1), torch::kInt32)};
  call.result(packed, 0);
  call.result(packed, 1);
}

// (data, batch_sizes, batch_first, padding_value, total_length) to (padded, lengths)
void unpack(Call& call) {
  OnnxBuilder& build = call.build();
  const OnnxValue packed = call.value(0);
  if (!packed.is_packed) call.refuse("its input is not the output of a recurrent layer");
  if (call.number(3) != 0) call.refuse("padding_value is not 0");
  call.result(call.flag(2) ? build.transpose(packed.name, {1, 0, 2}) : packed.name, 0);
  if (call.is_used(1)) call.result(build.cast(packed.lengths, torch::kInt64), 1);
}

}  // namespace

void add_recurrent(Translators& to) {
  add(to, {"aten::lstm"}, [](Call& call) { Recurrence(call, lstm_kind()).translate(); });
  add(to, {"aten::gru"}, [](Call& call) { Recurrence(call, gru_kind()).translate(); });
  add(to, {"aten::_pack_padded_sequence"}, pack);
  add(to, {"aten::_pad_packed_sequence"}, unpack);
}

}  // namespace lockstep::exporting
