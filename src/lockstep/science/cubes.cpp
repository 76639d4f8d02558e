#include "lockstep/science/cubes.h"

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"

namespace lockstep::science {

torch::Tensor split_cubes(const torch::Tensor& field, const Sizes& cube) {
  const auto dimensions = static_cast<std::int64_t>(cube.size());
  if (field.dim() != dimensions + 1) {
    throw DataError("a field [C, …] of {} dimensions was expected, got {}", dimensions,
                    data::describe(field));
  }
  // Reshapes to [C, n0, b0, n1, b1, …], then moves all n to the front.
  torch::Tensor cut = field;
  Sizes view = {field.size(0)};
  for (std::int64_t i = 0; i < dimensions; ++i) {
    const std::int64_t side = cube[static_cast<std::size_t>(i)];
    const std::int64_t count = side > 0 ? field.size(i + 1) / side : 0;
    if (count == 0) {
      throw DataError("a cube of [{}] does not fit into a field of {}", fmt::join(cube, ", "),
                      data::describe(field));
    }
    cut = cut.narrow(i + 1, 0, count * side);
    view.push_back(count);
    view.push_back(side);
  }
  Sizes order;
  for (std::int64_t i = 0; i < dimensions; ++i) order.push_back(1 + 2 * i);
  order.push_back(0);
  for (std::int64_t i = 0; i < dimensions; ++i) order.push_back(2 + 2 * i);
  Sizes shape = {-1, field.size(0)};
  shape.insert(shape.end(), cube.begin(), cube.end());
  return cut.reshape(view).permute(order).reshape(shape);
}

torch::Tensor combine_cubes(const torch::Tensor& cubes, const Sizes& size) {
  const auto dimensions = static_cast<std::int64_t>(size.size());
  Sizes view, order = {dimensions};
  std::int64_t count = 1;
  bool fits = cubes.dim() == dimensions + 2;
  for (std::int64_t i = 0; fits && i < dimensions; ++i) {
    const std::int64_t side = cubes.size(i + 2);
    fits = side > 0 && size[static_cast<std::size_t>(i)] % side == 0;
    if (!fits) break;
    view.push_back(size[static_cast<std::size_t>(i)] / side);
    count *= view.back();
  }
  if (!fits || count != cubes.size(0)) {
    throw DataError("cubes {} do not make a field of [{}]", data::describe(cubes),
                    fmt::join(size, ", "));
  }
  view.push_back(cubes.size(1));
  for (std::int64_t i = 0; i < dimensions; ++i) view.push_back(cubes.size(i + 2));
  for (std::int64_t i = 0; i < dimensions; ++i) {
    order.push_back(i);
    order.push_back(dimensions + 1 + i);
  }
  Sizes shape = {cubes.size(1)};
  shape.insert(shape.end(), size.begin(), size.end());
  return cubes.reshape(view).permute(order).reshape(shape);
}

std::string describe(const FieldShape& shape) {
  return fmt::format("{} channels of [{}], {} outputs", shape.channels, fmt::join(shape.size, ", "),
                     shape.outputs);
}

FieldShape shape_of(const data::Loader& loader) {
  if (loader.dataset()->size() == 0) throw DataError("the loader has no samples, so no shape");
  const Batch sample = loader.dataset()->sample(0);
  const torch::Tensor& features = sample["features"];
  if (features.dim() < 2 || features.dim() > 4) {
    throw DataError("samples [C, N, …] of 1 to 3 dimensions were expected, got {}",
                    data::describe(features));
  }
  return {.channels = features.size(0),
          .size = features.sizes().slice(1).vec(),
          .outputs = sample["targets"].numel()};
}

}  // namespace lockstep::science
