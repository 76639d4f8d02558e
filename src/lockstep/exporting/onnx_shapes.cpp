// Translators of operations that arrange, select or make tensors.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "lockstep/exporting/onnx_translation.h"

namespace lockstep::exporting {
namespace {

using Call = OperatorCall;
using Sizes = std::vector<std::optional<std::int64_t>>;

// The shape of the result is known from the trace. One dimension may have the size of the batch: it
// is -1, which ONNX computes from the others.
void reshape_to_result(Call& call) {
  const Sizes sizes = call.output_sizes();
  Integers shape;
  for (const auto& size : sizes) {
    if (size == 0) call.refuse("a tensor without elements");
    shape.push_back(size.value_or(-1));
  }
  if (std::ranges::count(shape, -1) > 1) {
    call.refuse("several dimensions have the size of the batch");
  }
  if (sizes == call.sizes(0)) return call.result(call.value(0));
  call.result(call.build().reshape(call.tensor(0), shape));
}

void permute(Call& call) {
  Integers order = call.integers(1);
  for (std::int64_t& axis : order) axis = axis < 0 ? axis + call.rank(0) : axis;
  call.result(call.build().transpose(call.tensor(0), order));
}

Integers identity_order(std::int64_t rank) {
  Integers order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

void transpose(Call& call) {
  Integers order = identity_order(call.rank(0));
  std::swap(order[static_cast<std::size_t>(call.dimension(1))],
            order[static_cast<std::size_t>(call.dimension(2))]);
  call.result(call.build().transpose(call.tensor(0), order));
}

void transpose_matrix(Call& call) {
  if (call.rank(0) < 2) return call.result(call.value(0));
  call.result(call.build().transpose(call.tensor(0), {1, 0}));
}

void unsqueeze(Call& call) {
  call.result(call.build().unsqueeze(call.tensor(0), {call.dimension(1, call.rank(0) + 1)}));
}

// An integer as a tensor of one dimension.
std::string vector_of(Call& call, std::size_t input) {
  return call.build().reshape(call.integer_tensor(input), {1});
}

// (self, dim, start, end, step)
void slice(Call& call) {
  OnnxBuilder& build = call.build();
  const auto bound = [&](std::size_t input, std::int64_t otherwise) {
    if (call.is_none(input)) return build.integers({otherwise});
    return call.value(input).is_known() ? build.integers({call.integer(input)})
                                        : vector_of(call, input);
  };
  call.result(build.add(
      "Slice", {call.tensor(0), bound(2, 0), bound(3, std::numeric_limits<std::int64_t>::max()),
                build.integers({call.dimension(1)}), build.integers({call.integer(4)})}));
}

// (self, dim, start, length)
void narrow(Call& call) {
  OnnxBuilder& build = call.build();
  const std::int64_t axis = call.dimension(1);
  if (call.value(2).is_known() && call.value(3).is_known()) {
    const std::int64_t begin = call.integer(2);
    return call.result(build.slice(call.tensor(0), axis, begin, begin + call.integer(3)));
  }
  const std::string begin = vector_of(call, 2);
  const std::string end = build.add("Add", {begin, vector_of(call, 3)});
  call.result(build.add("Slice", {call.tensor(0), begin, end, build.integers({axis})}));
}

// (self, dim, index)
void select(Call& call) {
  call.result(call.build().add("Gather", {call.tensor(0), call.integer_tensor(2)},
                               {{"axis", call.dimension(1)}}));
}

void unbind(Call& call) {
  const std::int64_t axis = call.dimension(1);
  OnnxValue list{.is_list = true};
  for (std::int64_t i = 0; i < call.size(0, axis); ++i) {
    list.items.push_back({.name = call.build().gather(call.tensor(0), axis, i)});
  }
  call.result(std::move(list));
}

void split_at(Call& call, std::int64_t axis, const Integers& sizes) {
  OnnxValue list{.is_list = true};
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    list.items.push_back({.name = call.build().slice(call.tensor(0), axis, begin, begin + size)});
    begin += size;
  }
  call.result(std::move(list));
}

// Parts of at most `size`.
void split_evenly(Call& call, std::int64_t axis, std::int64_t size) {
  Integers sizes;
  for (std::int64_t rest = call.size(0, axis); rest > 0; rest -= size) {
    sizes.push_back(std::min(size, rest));
  }
  split_at(call, axis, sizes);
}

// (self, chunks, dim)
void chunk(Call& call) {
  const std::int64_t axis = call.dimension(2), chunks = call.integer(1);
  split_evenly(call, axis, (call.size(0, axis) + chunks - 1) / chunks);
}

// (self, split_size, dim) or (self, split_sizes, dim)
void split(Call& call) {
  const std::int64_t axis = call.dimension(2);
  const bool is_list = call.value(1).is_list;
  if (is_list) return split_at(call, axis, call.integers(1));
  split_evenly(call, axis, call.integer(1));
}

// A tensor of a list, in the type of the result.
std::vector<std::string> parts_of(Call& call) {
  const auto type = call.output_type();
  const torch::jit::Node& list = *call.node().input(0)->node();
  std::vector<std::string> names;
  std::size_t i = 0;
  for (const OnnxValue& item : call.list(0)) {
    const bool is_made_here = list.kind() == c10::prim::ListConstruct;
    const auto own = is_made_here ? list.input(i++)->type()->cast<c10::TensorType>() : nullptr;
    const bool is_other = own && own->scalarType() && *own->scalarType() != type;
    const std::string name = call.name_of(item);
    names.push_back(is_other ? call.build().cast(name, type) : name);
  }
  return names;
}

void concatenate(Call& call) {
  const auto rank = static_cast<std::int64_t>(call.output_sizes().size());
  call.result(call.build().add("Concat", parts_of(call), {{"axis", call.dimension(1, rank)}}));
}

void stack(Call& call) {
  const auto rank = static_cast<std::int64_t>(call.output_sizes().size());
  const std::int64_t axis = call.dimension(1, rank);
  std::vector<std::string> parts;
  for (const std::string& part : parts_of(call)) {
    parts.push_back(call.build().unsqueeze(part, {axis}));
  }
  call.result(call.build().add("Concat", parts, {{"axis", axis}}));
}

// The sizes that a dimension is expanded to. In ONNX, a size of 1 leaves a dimension as it is; in
// LibTorch it is -1.
std::string expanded_sizes(Call& call) {
  OnnxBuilder& build = call.build();
  if (std::string_view(call.node().kind().toQualString()) != "aten::expand") {
    return build.add("Shape", {call.tensor(1)});  // expand_as
  }
  std::vector<std::string> parts;
  for (const OnnxValue& item : call.list(1)) {
    parts.push_back(item.known ? build.integers({std::abs(item.known->toInt())})
                               : build.reshape(item.name, {1}));
  }
  return build.add("Concat", parts, {{"axis", std::int64_t{0}}});
}

void expand(Call& call) {
  const Sizes from = call.sizes(0), to = call.output_sizes();
  if (from == to) return call.result(call.value(0));
  const std::size_t more = to.size() - from.size();
  Integers sizes;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const bool is_kept = i >= more && from[i - more] == to[i];
    if (!to[i] && !is_kept) {  // a dimension gets the size of the batch
      return call.result(call.build().add("Expand", {call.tensor(0), expanded_sizes(call)}));
    }
    sizes.push_back(is_kept ? 1 : *to[i]);
  }
  call.result(call.build().add("Expand", {call.tensor(0), call.build().integers(sizes)}));
}

void repeat(Call& call) {
  OnnxBuilder& build = call.build();
  const auto rank = static_cast<std::int64_t>(call.output_sizes().size());
  Integers axes;
  for (std::int64_t d = 0; d < rank - call.rank(0); ++d) axes.push_back(d);
  call.result(build.add("Tile", {build.unsqueeze(call.tensor(0), axes), call.shape(1)}));
}

// (self, repeats, dim, output_size)
void repeat_interleave(Call& call) {
  if (call.is_none(2) || !call.value(1).is_known() || !call.value(1).known->isInt()) {
    call.refuse("it needs one number of repeats and a dimension");
  }
  OnnxBuilder& build = call.build();
  const std::int64_t axis = call.dimension(2);
  Integers repeats(static_cast<std::size_t>(call.rank(0) + 1), 1);
  repeats[static_cast<std::size_t>(axis + 1)] = call.integer(1);
  const std::string tiled =
      build.add("Tile", {build.unsqueeze(call.tensor(0), {axis + 1}), build.integers(repeats)});
  Integers shape;
  for (const auto& size : call.output_sizes()) shape.push_back(size.value_or(-1));
  if (std::ranges::count(shape, -1) > 1)
    call.refuse("several dimensions have the size of the batch");
  call.result(build.reshape(tiled, shape));
}

// (self, dim, index)
void index_select(Call& call) {
  call.result(
      call.build().add("Gather", {call.tensor(0), call.tensor(2)}, {{"axis", call.dimension(1)}}));
}

// (weight, indices, …)
void embedding(Call& call) {
  call.result(
      call.build().add("Gather", {call.tensor(0), call.tensor(1)}, {{"axis", std::int64_t{0}}}));
}

// (self, dim, index, sparse_grad)
void gather(Call& call) {
  call.result(call.build().add("GatherElements", {call.tensor(0), call.tensor(2)},
                               {{"axis", call.dimension(1)}}));
}

// (self, dim, index, src)
void scatter(Call& call) {
  if (!call.is_tensor(3)) call.refuse("it writes a number");
  call.result(call.build().add("ScatterElements", {call.tensor(0), call.tensor(2), call.tensor(3)},
                               {{"axis", call.dimension(1)}}));
}

// (self, indices): only one of the indices may be a tensor.
void index(Call& call) {
  std::optional<std::int64_t> axis;
  std::string indices;
  std::int64_t at = 0;
  for (const OnnxValue& item : call.list(1)) {
    const bool is_none = item.known && item.known->isNone();
    if (!is_none && axis) call.refuse("several dimensions are indexed at once");
    if (!is_none) {
      axis = at;
      indices = call.name_of(item);
    }
    ++at;
  }
  if (!axis) return call.result(call.value(0));
  const torch::jit::Node& list = *call.node().input(1)->node();
  const auto type = list.input(static_cast<std::size_t>(*axis))->type()->cast<c10::TensorType>();
  if (type && type->scalarType() == torch::kBool) call.refuse("it selects by a mask");
  call.result(call.build().add("Gather", {call.tensor(0), indices}, {{"axis", *axis}}));
}

// (self, dim, descending) or (self, stable, dim, descending)
void sort(Call& call) {
  OnnxBuilder& build = call.build();
  const std::size_t first = call.count() == 4 ? 2 : 1;
  const std::int64_t axis = call.dimension(first);
  const std::string x = call.tensor(0);
  const std::string count = build.reshape(build.gather(build.add("Shape", {x}), 0, axis), {1});
  const auto sorted = build.add_several("TopK", {x, count}, 2,
                                        {{"axis", axis},
                                         {"largest", std::int64_t{call.flag(first + 1)}},
                                         {"sorted", std::int64_t{1}}});
  call.result(sorted[0], 0);
  call.result(sorted[1], 1);
}

void flip(Call& call) {
  OnnxBuilder& build = call.build();
  Integers axes = call.integers(1);
  const auto all = [&](std::int64_t value) { return build.integers(Integers(axes.size(), value)); };
  call.result(
      build.add("Slice", {call.tensor(0), all(-1), all(std::numeric_limits<std::int64_t>::min()),
                          build.integers(axes), all(-1)}));
}

void pad_with(Call& call, const char* mode, const std::string& value) {
  // LibTorch has pairs, from the last dimension on; ONNX has all beginnings and then all ends.
  const Integers pairs = call.integers(1);
  const auto rank = static_cast<std::size_t>(call.rank(0));
  Integers pads(2 * rank, 0);
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const std::size_t dimension = rank - 1 - i / 2;
    pads[dimension] = pairs[i];
    pads[rank + dimension] = pairs[i + 1];
  }
  call.result(call.build().add("Pad", {call.tensor(0), call.build().integers(pads), value},
                               {{"mode", std::string(mode)}}));
}

void constant_pad(Call& call) {
  pad_with(call, "constant", call.operand(2, call.output_type()));
}

// The input goes on with its other end.
void pad_around(Call& call) {
  OnnxBuilder& build = call.build();
  const Integers pairs = call.integers(1);
  std::string x = call.tensor(0);
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const std::int64_t axis = call.rank(0) - 1 - static_cast<std::int64_t>(i / 2);
    const std::int64_t size = call.size(0, axis), before = pairs[i], after = pairs[i + 1];
    if (before < 0 || after < 0) call.refuse("it cuts off");
    std::vector<std::string> parts = {x};
    if (before > 0) parts.insert(parts.begin(), build.slice(x, axis, size - before, size));
    if (after > 0) parts.push_back(build.slice(x, axis, 0, after));
    if (parts.size() > 1) x = build.add("Concat", parts, {{"axis", axis}});
  }
  call.result(x);
}

// (self, pad, mode, value); the mode is a word, or its number.
void pad(Call& call) {
  static const std::vector<std::string> kModes = {"reflect", "replicate", "circular", "constant"};
  const OnnxValue& given = call.value(2);
  const bool is_number = given.known && given.known->isInt();
  const std::string mode =
      is_number ? kModes.at(static_cast<std::size_t>(call.integer(2))) : call.text(2);
  if (mode == "reflect") return pad_with(call, "reflect", "");
  if (mode == "replicate") return pad_with(call, "edge", "");
  if (mode == "circular") return pad_around(call);
  const auto type = call.output_type();
  pad_with(call, "constant",
           call.is_none(3) ? call.build().constant(0, type) : call.operand(3, type));
}

// Conversions between types; those between devices and layouts mean nothing in a file.
void convert(Call& call) {
  if (call.type(0) == call.output_type()) return call.result(call.value(0));
  call.result(call.build().cast(call.tensor(0), call.output_type()));
}

// (self, dim), or (self) for all sizes
void size(Call& call) {
  if (call.count() < 2) call.refuse("it returns all sizes at once");
  const auto known = call.sizes(0).at(static_cast<std::size_t>(call.dimension(1)));
  if (known) return call.result(OnnxValue{.known = *known});
  OnnxBuilder& build = call.build();
  call.result(build.gather(build.add("Shape", {call.tensor(0)}), 0, call.dimension(1)));
}

// A tensor of one number, with a shape that is computed.
void fill_shape(Call& call, const std::string& shape, double number) {
  const auto type = call.output_type();
  const torch::Tensor value = torch::full({1}, number, torch::kFloat64).to(type);
  call.result(OnnxValue{.name = call.build().add("ConstantOfShape", {shape}, {{"value", value}}),
                        .is_zero = number == 0});
}

// (size, …)
void zeros(Call& call) {
  fill_shape(call, call.shape(0), 0);
}
void ones(Call& call) {
  fill_shape(call, call.shape(0), 1);
}
void full(Call& call) {
  fill_shape(call, call.shape(0), call.number(1));
}
// (self, size, …)
void new_zeros(Call& call) {
  fill_shape(call, call.shape(1), 0);
}
void new_ones(Call& call) {
  fill_shape(call, call.shape(1), 1);
}
void zeros_like(Call& call) {
  fill_shape(call, call.build().add("Shape", {call.tensor(0)}), 0);
}
void ones_like(Call& call) {
  fill_shape(call, call.build().add("Shape", {call.tensor(0)}), 1);
}
void full_like(Call& call) {
  fill_shape(call, call.build().add("Shape", {call.tensor(0)}), call.number(1));
}

// (end, …4), (start, end, …4) or (start, end, step, …4)
void arange(Call& call) {
  constexpr std::size_t kOptions = 4;
  const auto type = call.output_type();
  OnnxBuilder& build = call.build();
  const std::size_t numbers = call.count() - kOptions;
  const std::string begin = numbers > 1 ? call.operand(0, type) : build.constant(0, type);
  const std::string end = call.operand(numbers > 1 ? 1 : 0, type);
  const std::string step = numbers > 2 ? call.operand(2, type) : build.constant(1, type);
  call.result(build.add("Range", {begin, end, step}));
}

}  // namespace

void add_shapes(Translators& to) {
  add(to,
      {"aten::view", "aten::reshape", "aten::flatten", "aten::unflatten", "aten::view_as",
       "aten::reshape_as", "aten::_unsafe_view", "aten::squeeze"},
      reshape_to_result);
  add(to, {"aten::permute"}, permute);
  add(to, {"aten::transpose", "aten::swapaxes", "aten::swapdims"}, transpose);
  add(to, {"aten::t", "aten::numpy_T"}, transpose_matrix);
  add(to, {"aten::unsqueeze"}, unsqueeze);
  add(to, {"aten::slice"}, slice);
  add(to, {"aten::narrow"}, narrow);
  add(to, {"aten::select"}, select);
  add(to, {"aten::unbind"}, unbind);
  add(to, {"aten::chunk"}, chunk);
  add(to, {"aten::split", "aten::split_with_sizes"}, split);
  add(to, {"aten::cat", "aten::concat"}, concatenate);
  add(to, {"aten::stack"}, stack);
  add(to, {"aten::expand", "aten::expand_as"}, expand);
  add(to, {"aten::repeat"}, repeat);
  add(to, {"aten::repeat_interleave"}, repeat_interleave);
  add(to, {"aten::index_select"}, index_select);
  add(to, {"aten::embedding"}, embedding);
  add(to, {"aten::gather"}, gather);
  add(to, {"aten::scatter"}, scatter);
  add(to, {"aten::index"}, index);
  add(to, {"aten::sort"}, sort);
  add(to, {"aten::flip"}, flip);
  add(to, {"aten::constant_pad_nd"}, constant_pad);
  add(to, {"aten::pad", "aten::_pad_enum"}, pad);
  add(to, {"aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d"},
      [](Call& c) { pad_with(c, "reflect", ""); });
  add(to, {"aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d"},
      [](Call& c) { pad_with(c, "edge", ""); });
  add(to, {"aten::to", "aten::type_as", "aten::_to_copy"}, convert);
  add(to, {"aten::size"}, size);
  // The numbers of an empty tensor are set later, so zeros will do.
  add(to, {"aten::zeros", "aten::empty"}, zeros);
  add(to, {"aten::ones"}, ones);
  add(to, {"aten::full"}, full);
  add(to, {"aten::new_zeros", "aten::new_empty"}, new_zeros);
  add(to, {"aten::new_ones"}, new_ones);
  add(to, {"aten::zeros_like", "aten::empty_like"}, zeros_like);
  add(to, {"aten::ones_like"}, ones_like);
  add(to, {"aten::full_like"}, full_like);
  add(to, {"aten::arange"}, arange);
}

}  // namespace lockstep::exporting
