#include "lockstep/data/tensor_dataset.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/finite.h"
#include "lockstep/data/gather.h"
#include "lockstep/data/sample_error.h"
#include "lockstep/data/sample_stack.h"

namespace lockstep::data {
namespace {

FusedTransform plan(const Column& column) {
  if (!column.tensor.device().is_cpu() || column.tensor.scalar_type() != torch::kUInt8 ||
      !column.tensor.is_contiguous()) {
    return {.rest = {column.transform}};
  }
  FusedTransform fused = fuse(column.transform);
  const auto* floats = std::get_if<BytesToFloat>(&fused.conversion);
  if (floats != nullptr && !channels_for(*floats, column.tensor.sizes().slice(1))) {
    return {.rest = {column.transform}};
  }
  return fused;
}

// The sample of a batch of one.
Batch only_sample(const Batch& batch) {
  Batch sample;
  for (const auto& [key, tensor] : batch) sample.set(key, tensor.squeeze(0));
  return sample;
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
    if (!rows.is_contiguous()) {
      copy_strided(out);
    } else if (column_.allow_non_finite) {
      gather_copy(rows, indices_, out);
    } else if (!gather_copy_finite(rows, indices_, out)) {
      require_finite(out, indices_, where());
    }
    return out;
  }

  torch::Tensor operator()(const BytesToInt64&) const {
    torch::Tensor out = allocate(column_.tensor.sizes().slice(1), torch::kInt64);
    gather_bytes_to_int64(column_.tensor, indices_, out);
    return out;
  }

  torch::Tensor operator()(const BytesToFloat& floats) const {
    const torch::Tensor& rows = column_.tensor;
    const std::int64_t channels = channels_for(floats, rows.sizes().slice(1)).value();
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

  // For a file in Fortran's order. Only the selected rows are read.
  void copy_strided(torch::Tensor& out) const {
    for (std::size_t k = 0; k < indices_.size(); ++k) {
      out[static_cast<std::int64_t>(k)].copy_(column_.tensor[indices_[k]]);
    }
    if (!column_.allow_non_finite) require_finite(out, indices_, where());
  }

  std::string where() const { return column_.file.empty() ? column_.key : column_.file; }

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
    column.tensor = column.tensor.detach();
    if (column.file.empty()) column.tensor = column.tensor.contiguous();
    const Column& first = columns_.front();
    if (column.tensor.size(0) != first.tensor.size(0)) {
      throw DataError("TensorDataset: '{}' has {} rows, but '{}' has {}", column.key,
                      column.tensor.size(0), first.key, first.tensor.size(0));
    }
    transforms_.push_back(plan(column));
    chains_.emplace_back(column.transform);
  }
  size_ = columns_.front().tensor.size(0);
}

TensorDataset::TensorDataset(torch::Tensor features, torch::Tensor targets)
    : TensorDataset(std::vector<Column>{{.key = "features", .tensor = std::move(features)},
                                        {.key = "targets", .tensor = std::move(targets)}}) {}

Batch TensorDataset::sample(std::int64_t index) const {
  return only_sample(gather({&index, 1}, {}));
}

Batch TensorDataset::gather(std::span<const std::int64_t> indices, Batch reuse) const {
  return gather_rows(indices, {}, reuse);
}

// A class that is derived from this one may override gather() and sample() alone.
Batch TensorDataset::sample_in_epoch(std::int64_t index, const EpochKey& key) const {
  return has_sample_steps() ? only_sample(gather_rows({&index, 1}, key, {})) : sample(index);
}

Batch TensorDataset::gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                                     Batch reuse) const {
  return has_sample_steps() ? gather_rows(indices, key, reuse) : gather(indices, std::move(reuse));
}

Batch TensorDataset::gather_rows(std::span<const std::int64_t> indices, const EpochKey& key,
                                 const Batch& reuse) const {
  check_indices(indices, size_);
  Batch batch;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const std::string& name = columns_[c].key;
    if (chains_[c].has_sample_steps()) {
      batch.set(name, stack_samples(c, indices, key, reuse));
      continue;
    }
    const FusedTransform& transform = transforms_[c];
    torch::Tensor tensor = std::visit(Gather(columns_[c], indices, reuse), transform.conversion);
    naming_key(name, [&] {
      for (const TransformPtr& step : transform.rest) tensor = step.apply(tensor);
    });
    batch.set(name, std::move(tensor));
  }
  return batch;
}

std::string TensorDataset::name_of(std::int64_t index) const {
  const std::string& file = columns_.front().file;
  return file.empty() ? Dataset::name_of(index) : fmt::format("row {} of {}", index, file);
}

torch::Tensor TensorDataset::stack_samples(std::size_t column,
                                           std::span<const std::int64_t> indices,
                                           const EpochKey& key, const Batch& reuse) const {
  const Column& stored = columns_[column];
  const SampleChain& chain = chains_[column];
  if (indices.empty()) return stored.tensor.narrow(0, 0, 0);
  // Rows of a file may begin at any address, and are checked while they are copied.
  const bool is_checked = !stored.file.empty() || !stored.allow_non_finite;
  const Batch none;
  const torch::Tensor copied =
      is_checked ? Gather(stored, indices, none)(BytesAsIs()) : torch::Tensor();
  SampleStack stack(chain, {.key = stored.key, .count = indices.size(), .reuse = reuse});
  const auto add = [&](std::size_t k) {
    Draw draw{.random = SampleRandom(key, indices[k])};
    stack.add(chain.apply_to_sample(
        is_checked ? copied[static_cast<std::int64_t>(k)] : stored.tensor.select(0, indices[k]),
        draw));
  };
  for (std::size_t k = 0; k < indices.size(); ++k) {
    naming_sample(*this, indices[k], [&] { naming_key(stored.key, [&] { add(k); }); });
  }
  return naming_key(stored.key, [&] { return stack.finish(); });
}

bool TensorDataset::has_sample_steps() const {
  return std::ranges::any_of(chains_, &SampleChain::has_sample_steps);
}

bool TensorDataset::is_random() const {
  return std::ranges::any_of(chains_, &SampleChain::is_random);
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
