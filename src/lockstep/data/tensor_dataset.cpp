#include "lockstep/data/tensor_dataset.h"

#include <array>
#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/gather.h"

namespace lockstep::data {
namespace {

FusedTransform plan(const Column& column) {
  if (!column.tensor.device().is_cpu() || column.tensor.scalar_type() != torch::kUInt8) {
    return {.rest = {column.transform}};
  }
  FusedTransform fused = fuse(column.transform);
  const auto* floats = std::get_if<BytesToFloat>(&fused.conversion);
  // If the tensor cannot be images, apply() is used, whose error says what it expected.
  const std::int64_t dim = column.tensor.dim();
  const bool image = dim == 3 || dim == 4;
  const std::int64_t channels = dim == 4 ? column.tensor.size(3) : 1;
  const bool fits =
      floats != nullptr && image && channels > 0 &&
      (floats->mean.size() <= 1 || static_cast<std::int64_t>(floats->mean.size()) == channels);
  if (floats != nullptr && !fits) return {.rest = {column.transform}};
  return fused;
}

// Gathers the rows of one column. The rest of its transform is applied afterwards.
class Gather {
 public:
  Gather(const Column& column, std::span<const std::int64_t> indices, const Batch& reuse)
      : column_(column), indices_(indices), reuse_(reuse) {}

  torch::Tensor operator()(const BytesAsIs&) const {
    const torch::Tensor& rows = column_.tensor;
    if (!rows.device().is_cpu()) {
      return rows.index_select(
          0, torch::tensor(torch::ArrayRef<std::int64_t>(indices_.data(), indices_.size()),
                           torch::kInt64)
                 .to(rows.device()));
    }
    torch::Tensor out = allocate(rows.sizes().slice(1), rows.scalar_type());
    gather_copy(rows, indices_, out);
    return out;
  }

  torch::Tensor operator()(const BytesToInt64&) const {
    torch::Tensor out = allocate(column_.tensor.sizes().slice(1), torch::kInt64);
    gather_bytes_to_int64(column_.tensor, indices_, out);
    return out;
  }

  torch::Tensor operator()(const BytesToFloat& floats) const {
    const torch::Tensor& rows = column_.tensor;
    const std::int64_t channels = rows.dim() == 4 ? rows.size(3) : 1;
    torch::Tensor out = allocate(std::array{channels, rows.size(1), rows.size(2)}, torch::kFloat32);
    gather_bytes_to_float(rows, indices_,
                          {.channels = channels, .mean = floats.mean, .std = floats.std}, out);
    return out;
  }

 private:
  torch::Tensor allocate(torch::IntArrayRef row_shape, torch::ScalarType type) const {
    c10::SmallVector<std::int64_t, 6> shape{static_cast<std::int64_t>(indices_.size())};
    shape.append(row_shape.begin(), row_shape.end());
    return reuse_or_allocate(reuse_, column_.key, shape, type);
  }

  const Column& column_;
  std::span<const std::int64_t> indices_;
  const Batch& reuse_;
};

}  // namespace

TensorDataset::TensorDataset(std::vector<Column> columns) : columns_(std::move(columns)) {
  if (columns_.empty()) throw ConfigError("TensorDataset: expected at least one column, got none");
  Batch seen;
  for (Column& column : columns_) {
    if (!column.tensor.defined() || column.tensor.dim() == 0) {
      throw DataError("TensorDataset: '{}': expected a tensor of rows, [N, ...], got {}",
                      column.key, column.tensor.defined() ? "a scalar" : "no tensor");
    }
    if (seen.contains(column.key)) {
      throw ConfigError("TensorDataset: the key '{}' comes twice", column.key);
    }
    seen.set(column.key, column.tensor);
    column.tensor = column.tensor.detach().contiguous();
    const Column& first = columns_.front();
    if (column.tensor.size(0) != first.tensor.size(0)) {
      throw DataError("TensorDataset: '{}' has {} rows, but '{}' has {}", column.key,
                      column.tensor.size(0), first.key, first.tensor.size(0));
    }
    transforms_.push_back(plan(column));
  }
  size_ = columns_.front().tensor.size(0);
}

TensorDataset::TensorDataset(torch::Tensor features, torch::Tensor targets)
    : TensorDataset(std::vector<Column>{{.key = "features", .tensor = std::move(features)},
                                        {.key = "targets", .tensor = std::move(targets)}}) {}

Batch TensorDataset::sample(std::int64_t index) const {
  Batch sample;
  for (const auto& [key, tensor] : gather({&index, 1}, {})) sample.set(key, tensor.squeeze(0));
  return sample;
}

Batch TensorDataset::gather(std::span<const std::int64_t> indices, Batch reuse) const {
  check_indices(indices, size_);
  Batch batch;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const FusedTransform& transform = transforms_[c];
    torch::Tensor tensor = std::visit(Gather(columns_[c], indices, reuse), transform.conversion);
    try {
      for (const TransformPtr& step : transform.rest) tensor = step.apply(tensor);
    } catch (const DataError& error) {
      throw DataError("'{}': {}", columns_[c].key, error.what());
    }
    batch.set(columns_[c].key, std::move(tensor));
  }
  return batch;
}

torch::Tensor TensorDataset::column(std::string_view key) const {
  for (const Column& column : columns_) {
    if (column.key != key) continue;
    return TensorDataset(std::vector<Column>{column}).gather(examples(size_), {})[key];
  }
  return {};
}

DatasetPtr tensor_dataset(std::vector<Column> columns) {
  return std::make_shared<const TensorDataset>(std::move(columns));
}

}  // namespace lockstep::data
