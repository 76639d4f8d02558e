// ONNX's operators that arrange, select or make tensors.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/exporting/onnx_evaluator.h"

namespace lockstep::exporting {
namespace {

using Operation = OnnxOperation;
using Numbers = std::vector<std::int64_t>;
using Tensors = std::vector<torch::Tensor>;
using torch::Tensor;

Tensor small(const Numbers& numbers) {
  return torch::tensor(numbers, torch::kInt64);
}

// 0 means the size of the input.
Tensors reshape_kernel(const Operation& o) {
  Numbers shape = o.integers(1);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) shape[i] = o[0].size(static_cast<std::int64_t>(i));
  }
  return {o[0].reshape(shape)};
}

Tensors unsqueeze_kernel(const Operation& o) {
  Numbers axes = o.integers(1);
  const auto rank = o[0].dim() + static_cast<std::int64_t>(axes.size());
  for (std::int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  std::ranges::sort(axes);
  Tensor y = o[0];
  for (const std::int64_t axis : axes) y = y.unsqueeze(axis);
  return {y};
}

Tensors concat_kernel(const Operation& o) {
  for (std::size_t i = 1; i < o.inputs.size(); ++i) {
    if (o[i].scalar_type() != o[0].scalar_type()) {
      throw DataError("ONNX: {}: expected inputs of one type", o.node.name);
    }
  }
  return {torch::cat(o.inputs, o.attribute("axis", std::int64_t{0}))};
}

// Bounds beyond the size are moved to it. With a negative step, elements are taken backwards.
Tensors slice_kernel(const Operation& o) {
  const Numbers starts = o.integers(1), ends = o.integers(2), axes = o.integers(3);
  const Numbers steps = o.has(4) ? o.integers(4) : Numbers(starts.size(), 1);
  Tensor y = o[0];
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t size = y.size(axes[i]), step = steps[i];
    const auto bound = [&](std::int64_t value, std::int64_t least, std::int64_t most) {
      return std::clamp(value < 0 ? std::max(value, -size - 1) + size : value, least, most);
    };
    Numbers taken;
    if (step > 0) {
      const std::int64_t end = bound(ends[i], 0, size);
      for (std::int64_t at = bound(starts[i], 0, size); at < end; at += step) taken.push_back(at);
    } else {
      const std::int64_t end = bound(ends[i], -1, size - 1);
      for (std::int64_t at = bound(starts[i], 0, size - 1); at > end; at += step) {
        taken.push_back(at);
      }
    }
    y = y.index_select(axes[i], small(taken));
  }
  return {y};
}

// The shape is that of the input with the axis replaced by the shape of the indices.
Tensors gather_kernel(const Operation& o) {
  const std::int64_t axis = o.attribute("axis", std::int64_t{0});
  const std::int64_t from = axis < 0 ? axis + o[0].dim() : axis;
  const Tensor indices = torch::where(o[1] < 0, o[1] + o[0].size(from), o[1]);
  Numbers shape = o[0].sizes().slice(0, static_cast<std::size_t>(from)).vec();
  shape.insert(shape.end(), o[1].sizes().begin(), o[1].sizes().end());
  const auto rest = o[0].sizes().slice(static_cast<std::size_t>(from) + 1);
  shape.insert(shape.end(), rest.begin(), rest.end());
  return {o[0].index_select(from, indices.reshape({-1}).to(torch::kInt64)).reshape(shape)};
}

Tensors gather_elements_kernel(const Operation& o) {
  return {o[0].gather(o.attribute("axis", std::int64_t{0}), o[1])};
}

Tensors scatter_elements_kernel(const Operation& o) {
  return {o[0].scatter(o.attribute("axis", std::int64_t{0}), o[1], o[2])};
}

// Both shapes are extended to each other.
Tensors expand_kernel(const Operation& o) {
  const Tensor other = torch::empty(o.integers(1), o[0].options());
  return {torch::broadcast_tensors({o[0], other})[0].contiguous()};
}

Tensors pad_kernel(const Operation& o) {
  const Numbers pads = o.integers(1);
  const auto rank = static_cast<std::size_t>(o[0].dim());
  const std::string mode = o.attribute("mode", std::string("constant"));
  if (mode == "constant") {
    Numbers pairs;
    for (std::size_t d = rank; d-- > 0;) {
      pairs.push_back(pads[d]);
      pairs.push_back(pads[rank + d]);
    }
    const double value = o.has(2) ? o[2].item<double>() : 0;
    return {torch::constant_pad_nd(o[0], pairs, value)};
  }
  // Each dimension is indexed; indices outside are reflected or moved to the edge.
  Tensor y = o[0];
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t size = y.size(static_cast<std::int64_t>(d));
    Numbers taken;
    for (std::int64_t at = -pads[d]; at < size + pads[rank + d]; ++at) {
      const std::int64_t reflected = at < 0 ? -at : at >= size ? 2 * (size - 1) - at : at;
      taken.push_back(mode == "reflect" ? reflected : std::clamp<std::int64_t>(at, 0, size - 1));
    }
    y = y.index_select(static_cast<std::int64_t>(d), small(taken));
  }
  return {y};
}

torch::ScalarType type_numbered(std::int64_t number) {
  for (const auto type :
       {torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kInt64, torch::kInt32,
        torch::kInt16, torch::kInt8, torch::kUInt8, torch::kBool}) {
    if (onnx_type(type) == number) return type;
  }
  throw DataError("ONNX: unknown type {}", number);
}

Tensors cast_kernel(const Operation& o) {
  return {o[0].to(type_numbered(o.attribute("to", std::int64_t{0})))};
}

Tensors constant_of_shape_kernel(const Operation& o) {
  const auto found = o.node.attributes.find("value");
  const Tensor value =
      found == o.node.attributes.end() ? torch::zeros({1}) : std::get<Tensor>(found->second);
  return {value.expand(o.integers(0)).contiguous()};
}

Tensors range_kernel(const Operation& o) {
  return {torch::arange(o[0].item(), o[1].item(), o[2].item(), o[0].options())};
}

// Of equal elements, the one with the lower index comes first.
Tensors top_k_kernel(const Operation& o) {
  const std::int64_t axis = o.attribute("axis", std::int64_t{-1});
  const bool largest = o.attribute("largest", std::int64_t{1}) != 0;
  const auto [values, indices] = o[0].sort(/*stable=*/true, axis, largest);
  const std::int64_t count = o.integers(1).front();
  return {values.narrow(axis, 0, count), indices.narrow(axis, 0, count)};
}

}  // namespace

void add_shape_kernels(OnnxKernels& to) {
  to.emplace("Identity", [](const Operation& o) -> Tensors { return {o[0]}; });
  to.emplace("Reshape", reshape_kernel);
  to.emplace("Transpose", [](const Operation& o) -> Tensors {
    return {o[0].permute(o.attribute("perm", Numbers()))};
  });
  to.emplace("Unsqueeze", unsqueeze_kernel);
  to.emplace("Concat", concat_kernel);
  to.emplace("Slice", slice_kernel);
  to.emplace("Gather", gather_kernel);
  to.emplace("GatherElements", gather_elements_kernel);
  to.emplace("ScatterElements", scatter_elements_kernel);
  to.emplace("Expand", expand_kernel);
  to.emplace("Tile", [](const Operation& o) -> Tensors { return {o[0].repeat(o.integers(1))}; });
  to.emplace("Pad", pad_kernel);
  to.emplace("Cast", cast_kernel);
  to.emplace("Shape", [](const Operation& o) -> Tensors { return {small(o[0].sizes().vec())}; });
  to.emplace("ConstantOfShape", constant_of_shape_kernel);
  to.emplace("Range", range_kernel);
  to.emplace("TopK", top_k_kernel);
}

}  // namespace lockstep::exporting
