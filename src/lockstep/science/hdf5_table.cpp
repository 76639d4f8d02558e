#include "lockstep/science/hdf5_table.h"

#include <memory>
#include <span>
#include <utility>

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/data/draw_indices.h"
#include "lockstep/data/finite.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/transformed.h"
#include "lockstep/science/hdf5.h"

namespace lockstep::science {
namespace {

// One or more datasets of the file that become one tensor of a batch.
struct TableColumn {
  std::string key;
  std::vector<std::string> datasets;
  data::TransformPtr transform;
};

// Rows that are kept in memory, with the names that they have in the file.
class KeptTable : public data::TensorDataset {
 public:
  KeptTable(std::vector<data::Column> columns, std::string place)
      : TensorDataset(std::move(columns)), place_(std::move(place)) {}

  std::string name_of(std::int64_t index) const override {
    return fmt::format("row {} of {}", index, place_);
  }

 private:
  std::string place_;
};

class TableRows {
 public:
  TableRows(const Hdf5TableOptions& options, std::vector<TableColumn> columns)
      : file_(options.path),
        columns_(std::move(columns)),
        allow_non_finite_(options.allow_non_finite) {
    for (const TableColumn& column : columns_) {
      for (const std::string& name : column.datasets) add(name, column.datasets.size() > 1);
    }
  }

  std::int64_t size() const { return size_; }
  double bytes() const { return bytes_; }
  // File and datasets, for messages.
  std::string place() const {
    std::vector<std::string> names;
    for (const TableColumn& column : columns_) {
      for (const std::string& name : column.datasets) names.push_back(fmt::format("'{}'", name));
    }
    return fmt::format("{}: {} {}", file_.path().string(),
                       names.size() == 1 ? "dataset" : "datasets", fmt::join(names, ", "));
  }

  // These rows of the file, as a data set in memory.
  data::DatasetPtr read(std::span<const std::int64_t> rows) const {
    return data::tensor_dataset(
        read_columns([&](const std::string& name) { return read(name, rows); }));
  }

  data::DatasetPtr read_all() const {
    return std::make_shared<const KeptTable>(
        read_columns([&](const std::string& name) { return read(name); }), place());
  }

 private:
  template <typename Read>
  std::vector<data::Column> read_columns(const Read& read_dataset) const {
    std::vector<data::Column> columns;
    for (const TableColumn& column : columns_) {
      columns.push_back({.key = column.key,
                         .tensor = read_column(column, read_dataset),
                         .transform = column.transform});
    }
    return columns;
  }

  template <typename Read>
  static torch::Tensor read_column(const TableColumn& column, const Read& read_dataset) {
    if (column.datasets.size() == 1) return read_dataset(column.datasets[0]);
    std::vector<torch::Tensor> parts;
    for (const std::string& name : column.datasets) {
      const torch::Tensor part = read_dataset(name).to(torch::kFloat32);
      parts.push_back(part.dim() == 1 ? part.unsqueeze(1) : part.flatten(1));
    }
    return torch::cat(parts, 1);
  }

  torch::Tensor read(const std::string& name, std::span<const std::int64_t> rows) const {
    torch::Tensor values = file_.read_rows(name, rows);
    if (!allow_non_finite_) data::require_finite(values, rows, where(name));
    return values;
  }

  // All rows. There is no list of them, because it may be larger than the rows.
  torch::Tensor read(const std::string& name) const {
    torch::Tensor values = file_.read_rows(name);
    if (allow_non_finite_) return values;
    if (const auto found = data::find_non_finite(values)) {
      const std::int64_t row = found->index.front();
      data::require_finite(values.narrow(0, row, 1), {&row, 1}, where(name));
    }
    return values;
  }

  std::string where(const std::string& name) const {
    return fmt::format("{}: dataset '{}'", file_.path().string(), name);
  }

  void add(const std::string& name, bool is_joined) {
    const auto shape = file_.shape(name);
    double numbers = 1;
    for (const std::int64_t side : shape) numbers *= static_cast<double>(side);
    if (shape.empty() || numbers <= 0) {
      throw DataError("{}: expected rows, got the shape [{}]", where(name), fmt::join(shape, ", "));
    }
    if (first_.empty()) {
      first_ = name;
      size_ = shape[0];
    } else if (shape[0] != size_) {
      throw DataError("{}: has {} rows, but '{}' has {}", where(name), shape[0], first_, size_);
    }
    const auto type = is_joined ? torch::kFloat32 : file_.type(name);
    bytes_ += numbers * static_cast<double>(c10::elementSize(type));
  }

  Hdf5File file_;
  std::vector<TableColumn> columns_;
  bool allow_non_finite_;
  std::string first_;  // the dataset that the number of rows is taken from
  std::int64_t size_ = 0;
  double bytes_ = 0;
};

// Reads rows when they are needed.
class StreamedTable : public data::Dataset {
 public:
  explicit StreamedTable(TableRows rows) : rows_(std::move(rows)) {}

  std::int64_t size() const override { return rows_.size(); }

  Batch sample(std::int64_t index) const override { return rows_.read({&index, 1})->sample(0); }

  Batch gather(std::span<const std::int64_t> indices, Batch reuse) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    return rows_.read(indices)->gather(data::count_up(count), std::move(reuse));
  }

  std::string name_of(std::int64_t index) const override {
    return fmt::format("row {} of {}", index, rows_.place());
  }

 private:
  TableRows rows_;
};

std::vector<TableColumn> columns_of(const Hdf5TableOptions& options) {
  if (options.path.empty()) throw ConfigError("path: expected a file, got none");
  if (options.features.empty()) throw ConfigError("features: expected a dataset, got none");
  std::vector<TableColumn> columns = {{"features", options.features, options.transform}};
  if (options.targets) {
    columns.push_back({"targets", {*options.targets}, options.target_transform});
  } else if (options.target_transform) {
    throw ConfigError("target_transform: it is for targets, and there are none");
  }
  return columns;
}

}  // namespace

data::DatasetPtr hdf5_table(const Hdf5TableOptions& options) {
  TableRows rows(options, columns_of(options));
  if (rows.bytes() <= static_cast<double>(options.memory)) return rows.read_all();
  if (!options.transform && !options.target_transform) {
    return std::make_shared<const StreamedTable>(std::move(rows));
  }
  // The transforms are around the table, because they draw by a row's place in the file, not in the
  // batch that was read.
  Hdf5TableOptions stored = options;
  stored.transform = stored.target_transform = {};
  return data::transformed(
      std::make_shared<const StreamedTable>(TableRows(stored, columns_of(stored))),
      {.transform = options.transform, .target_transform = options.target_transform});
}

}  // namespace lockstep::science
