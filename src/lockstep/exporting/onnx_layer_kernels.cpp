// ONNX's operators that are layers: convolutions, pools, norms, LSTM and GRU.
#include <algorithm>
#include <functional>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/exporting/onnx_evaluator.h"

namespace lockstep::exporting {
namespace {

using Operation = OnnxOperation;
using Numbers = std::vector<std::int64_t>;
using Tensors = std::vector<torch::Tensor>;
using torch::Tensor;

// Settings of a window over the dimensions after batch and channels.
struct Window {
  Numbers kernel, stride, dilation, begins, ends;
};

Window window_of(const Operation& o, const Numbers& kernel) {
  const std::size_t count = kernel.size();
  const Numbers pads = o.attribute("pads", Numbers(2 * count, 0));
  return {.kernel = kernel,
          .stride = o.attribute("strides", Numbers(count, 1)),
          .dilation = o.attribute("dilations", Numbers(count, 1)),
          .begins = {pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(count)},
          .ends = {pads.begin() + static_cast<std::ptrdiff_t>(count), pads.end()}};
}

// Pairs for LibTorch, from the last dimension on.
Numbers pairs_of(const Window& window) {
  Numbers pairs;
  for (std::size_t d = window.begins.size(); d-- > 0;) {
    pairs.push_back(window.begins[d]);
    pairs.push_back(window.ends[d]);
  }
  return pairs;
}

Tensors conv_kernel(const Operation& o) {
  const Window window = window_of(o, o[1].sizes().slice(2).vec());
  const Tensor x = torch::constant_pad_nd(o[0], pairs_of(window), 0);
  const Numbers zeros(window.kernel.size(), 0);
  return {at::convolution(x, o[1], o.has(2) ? o[2] : Tensor(), window.stride, zeros,
                          window.dilation, /*transposed=*/false, zeros,
                          o.attribute("group", std::int64_t{1}))};
}

// The output is cut off by the pads.
Tensors conv_transpose_kernel(const Operation& o) {
  const Window window = window_of(o, o[1].sizes().slice(2).vec());
  const Numbers zeros(window.kernel.size(), 0);
  Tensor y =
      at::convolution(o[0], o[1], o.has(2) ? o[2] : Tensor(), window.stride, zeros, window.dilation,
                      /*transposed=*/true, zeros, o.attribute("group", std::int64_t{1}));
  const Numbers more = o.attribute("output_padding", zeros);
  Numbers pairs;
  for (std::size_t d = window.begins.size(); d-- > 0;) {
    pairs.push_back(-window.begins[d]);
    pairs.push_back(more[d] - window.ends[d]);
  }
  if (o.has(2)) {
    // Elements that are added at the end have the bias only.
    Numbers shape(static_cast<std::size_t>(y.dim()), 1);
    shape[1] = -1;
    const Tensor bias = o[2].reshape(shape);
    return {torch::constant_pad_nd(y - bias, pairs, 0) + bias};
  }
  return {torch::constant_pad_nd(y, pairs, 0)};
}

// All windows: [batch, channels, outputs…, kernel…].
Tensor windows_of(const Tensor& padded, const Window& window) {
  Tensor y = padded;
  for (std::size_t d = 0; d < window.kernel.size(); ++d) {
    const auto dimension = static_cast<std::int64_t>(d) + 2;
    const std::int64_t span = window.dilation[d] * (window.kernel[d] - 1) + 1;
    y = y.unfold(dimension, span, window.stride[d]);
    y = y.slice(-1, 0, span, window.dilation[d]);
  }
  return y;
}

Numbers last_dimensions(std::size_t count) {
  Numbers dimensions;
  for (std::size_t d = 0; d < count; ++d) dimensions.push_back(-1 - static_cast<std::int64_t>(d));
  return dimensions;
}

// With ceil_mode, a window may begin inside the input and end behind it.
Tensors max_pool_kernel(const Operation& o) {
  Window window = window_of(o, o.attribute("kernel_shape", Numbers()));
  if (o.attribute("ceil_mode", std::int64_t{0}) != 0) {
    for (std::size_t d = 0; d < window.kernel.size(); ++d) {
      const std::int64_t size = o[0].size(static_cast<std::int64_t>(d) + 2);
      const std::int64_t span = window.dilation[d] * (window.kernel[d] - 1) + 1;
      const std::int64_t length = size + window.begins[d] + window.ends[d] - span;
      const std::int64_t stride = window.stride[d];
      std::int64_t outputs = (length + stride - 1) / stride + 1;
      if ((outputs - 1) * stride >= size + window.begins[d]) --outputs;
      window.ends[d] += std::max<std::int64_t>((outputs - 1) * stride - length, 0);
    }
  }
  const double lowest = -std::numeric_limits<double>::infinity();
  const Tensor x = torch::constant_pad_nd(o[0], pairs_of(window), lowest);
  return {windows_of(x, window).amax(last_dimensions(window.kernel.size()))};
}

Tensors average_pool_kernel(const Operation& o) {
  const Window window = window_of(o, o.attribute("kernel_shape", Numbers()));
  const Numbers last = last_dimensions(window.kernel.size());
  const auto sums = [&](const Tensor& x) {
    return windows_of(torch::constant_pad_nd(x, pairs_of(window), 0), window).sum(last);
  };
  if (o.attribute("count_include_pad", std::int64_t{0}) != 0) {
    const Tensor x = torch::constant_pad_nd(o[0], pairs_of(window), 0);
    return {windows_of(x, window).mean(last)};
  }
  return {sums(o[0]) / sums(torch::ones_like(o[0]))};
}

Tensors global_average_pool_kernel(const Operation& o) {
  Numbers axes;
  for (std::int64_t d = 2; d < o[0].dim(); ++d) axes.push_back(d);
  return {o[0].mean(axes, /*keepdim=*/true)};
}

// A vector of one number per channel, in the shape [1, channels, 1, …].
Tensor channels_of(const Tensor& numbers, const Tensor& like) {
  Numbers shape(static_cast<std::size_t>(like.dim()), 1);
  shape[1] = -1;
  return numbers.reshape(shape);
}

Tensors batch_normalization_kernel(const Operation& o) {
  const Tensor& x = o[0];
  const auto fit = [&](std::size_t input) { return channels_of(o[input], x); };
  const double eps = o.attribute("epsilon", 1e-5);
  return {(x - fit(3)) / (fit(4) + eps).sqrt() * fit(1) + fit(2)};
}

Tensor standardized(const Tensor& x, const Numbers& axes, double eps) {
  const Tensor centred = x - x.mean(axes, /*keepdim=*/true);
  return centred / (centred.square().mean(axes, /*keepdim=*/true) + eps).sqrt();
}

Tensors instance_normalization_kernel(const Operation& o) {
  Numbers axes;
  for (std::int64_t d = 2; d < o[0].dim(); ++d) axes.push_back(d);
  const Tensor y = standardized(o[0], axes, o.attribute("epsilon", 1e-5));
  return {y * channels_of(o[1], y) + channels_of(o[2], y)};
}

Tensors layer_normalization_kernel(const Operation& o) {
  const std::int64_t axis = o.attribute("axis", std::int64_t{-1});
  Numbers axes;
  for (std::int64_t d = axis < 0 ? axis + o[0].dim() : axis; d < o[0].dim(); ++d) axes.push_back(d);
  Tensor y = standardized(o[0], axes, o.attribute("epsilon", 1e-5)) * o[1];
  if (o.has(2)) y = y + o[2];
  return {y};
}

// One direction of a recurrent layer. `step` computes the next states from those before.
struct Sequence {
  Tensor x;        // [tokens, batch, features]
  Tensor lengths;  // [batch], or undefined
  bool reverse = false;
};

using States = std::vector<Tensor>;  // the first one is the output
using Step = std::function<States(const Tensor& x, const States& before)>;

struct Passed {
  Tensor outputs;  // [tokens, batch, features]; zero behind the end of a sequence
  States last;
};

Passed pass(const Sequence& sequence, States states, const Step& step) {
  const std::int64_t tokens = sequence.x.size(0);
  std::vector<Tensor> outputs(static_cast<std::size_t>(tokens));
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int64_t t = sequence.reverse ? tokens - 1 - i : i;
    States next = step(sequence.x[t], states);
    Tensor output = next[0];
    if (sequence.lengths.defined()) {
      // A sequence that is over, or that has not begun yet in reverse, keeps its states.
      const Tensor is_inside = (sequence.lengths > t).unsqueeze(1);
      output = torch::where(is_inside, output, torch::zeros_like(output));
      for (std::size_t s = 0; s < next.size(); ++s) {
        next[s] = torch::where(is_inside, next[s], states[s]);
      }
    }
    outputs[static_cast<std::size_t>(t)] = output;
    states = std::move(next);
  }
  return {torch::stack(outputs), std::move(states)};
}

States lstm_step(const Tensor& gates, const States& before) {
  const auto part = gates.chunk(4, 1);  // input, output, forget, cell
  const Tensor cell = part[2].sigmoid() * before[1] + part[0].sigmoid() * part[3].tanh();
  return {part[1].sigmoid() * cell.tanh(), cell};
}

// linear_before_reset: the reset gate multiplies the state's product with its weights.
States gru_step(const Tensor& from_input, const Tensor& from_state, const States& before) {
  const auto x = from_input.chunk(3, 1), h = from_state.chunk(3, 1);  // update, reset, new
  const Tensor update = (x[0] + h[0]).sigmoid();
  const Tensor reset = (x[1] + h[1]).sigmoid();
  const Tensor proposed = (x[2] + reset * h[2]).tanh();
  return {(1 - update) * proposed + update * before[0]};
}

template <bool kLstm>
Tensors recurrent_kernel(const Operation& o) {
  constexpr std::int64_t kGates = kLstm ? 4 : 3;
  if (!kLstm && o.attribute("linear_before_reset", std::int64_t{0}) == 0) {
    throw DataError("ONNX: {}: expected linear_before_reset = 1", o.node.name);
  }
  const std::int64_t directions = o[1].size(0), hidden = o[2].size(2), batch = o[0].size(1);
  std::vector<Tensor> outputs;
  std::vector<States> last;
  for (std::int64_t d = 0; d < directions; ++d) {
    const Tensor w = o[1][d].t(), r = o[2][d].t();
    const Tensor bias = o.has(3) ? o[3][d] : torch::zeros({2 * kGates * hidden}, o[0].options());
    const auto halves = bias.chunk(2);
    const auto first = [&](std::size_t input) {
      return o.has(input) ? o[input][d] : torch::zeros({batch, hidden}, o[0].options());
    };
    States states = {first(5)};
    if (kLstm) states.push_back(first(6));
    const auto step = [&](const Tensor& x, const States& before) {
      const Tensor from_input = x.mm(w) + halves[0], from_state = before[0].mm(r) + halves[1];
      return kLstm ? lstm_step(from_input + from_state, before)
                   : gru_step(from_input, from_state, before);
    };
    Passed passed =
        pass({.x = o[0],
              .lengths = o.has(4) ? o[4] : Tensor(),
              .reverse = d == 1 || o.attribute("direction", std::string("forward")) == "reverse"},
             std::move(states), step);
    outputs.push_back(std::move(passed.outputs));
    last.push_back(std::move(passed.last));
  }
  Tensors results = {torch::stack(outputs, 1)};
  for (std::size_t s = 0; s < last.front().size(); ++s) {
    std::vector<Tensor> parts;
    for (const States& states : last) parts.push_back(states[s]);
    results.push_back(torch::stack(parts));
  }
  return results;
}

}  // namespace

void add_layer_kernels(OnnxKernels& to) {
  to.emplace("Conv", conv_kernel);
  to.emplace("ConvTranspose", conv_transpose_kernel);
  to.emplace("MaxPool", max_pool_kernel);
  to.emplace("AveragePool", average_pool_kernel);
  to.emplace("GlobalAveragePool", global_average_pool_kernel);
  to.emplace("BatchNormalization", batch_normalization_kernel);
  to.emplace("InstanceNormalization", instance_normalization_kernel);
  to.emplace("LayerNormalization", layer_normalization_kernel);
  to.emplace("LSTM", recurrent_kernel<true>);
  to.emplace("GRU", recurrent_kernel<false>);
}

}  // namespace lockstep::exporting
