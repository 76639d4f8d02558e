#include "lockstep/recipe/prediction_file.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/data/describe.h"
#include "lockstep/log/csv_table.h"
#include "lockstep/source/npy.h"

namespace lockstep::recipe {
namespace {

namespace fs = std::filesystem;

// One file per column. With several columns, the key is a part of the name: "x-logits.npy".
class NpyFormat : public PredictionFormat {
 public:
  explicit NpyFormat(fs::path path) : path_(std::move(path)) {}

  void begin(const std::vector<OutputColumn>& columns) override {
    for (const OutputColumn& column : columns) {
      const fs::path path = columns.size() == 1 ? path_ : path_of(column.key);
      files_.push_back(std::make_unique<data::NpyFile>(path, column.type, column.shape));
    }
  }

  void write(const std::vector<torch::Tensor>& values) override {
    for (std::size_t i = 0; i < values.size(); ++i) files_[i]->append(values[i]);
  }

  std::vector<fs::path> finish() override {
    std::vector<fs::path> paths;
    for (const auto& file : files_) {
      file->finish();
      paths.push_back(file->path());
    }
    return paths;
  }

 private:
  fs::path path_of(const std::string& key) const {
    if (key.find('/') != std::string::npos) {
      throw ConfigError(
          "{}: the key '{}' cannot be a part of a file's name; choose one with --keys",
          path_.string(), key);
    }
    return path_.parent_path() / fmt::format("{}-{}.npy", path_.stem().string(), key);
  }

  fs::path path_;
  std::vector<std::unique_ptr<data::NpyFile>> files_;
};

// With all digits, so that a number reads back to the same bits.
template <typename T>
void append_cells(const torch::Tensor& row, std::string& line) {
  const torch::Tensor values = row.contiguous();
  const T* const numbers = values.data_ptr<T>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    fmt::format_to(std::back_inserter(line), ",{}", numbers[i]);
  }
}

// The type in which numbers are printed: as float, double or integer.
torch::ScalarType printed_as(torch::ScalarType type) {
  if (c10::isIntegralType(type, /*includeBool=*/true)) return torch::kInt64;
  return type == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

// The first column is the index of the sample. The numbers of a sample's output are one column
// each.
class CsvFormat : public PredictionFormat {
 public:
  CsvFormat(const fs::path& path, std::vector<std::int64_t> samples)
      : path_(path), samples_(std::move(samples)) {}

  void begin(const std::vector<OutputColumn>& columns) override {
    std::string line = "index";
    for (const OutputColumn& column : columns) {
      if (c10::isComplexType(column.type)) {
        throw DataError("{}: output '{}': expected real numbers, got {}; write .npy instead",
                        path_.string(), column.key, c10::toString(column.type));
      }
      std::int64_t cells = 1;
      for (std::size_t i = 1; i < column.shape.size(); ++i) cells *= column.shape[i];
      for (std::int64_t i = 0; i < cells; ++i) {
        line += ',';
        line += csv_cell(fmt::format("{}_{}", column.key, i));
      }
    }
    file_.emplace(path_);
    file_->write(line + "\n");
  }

  void write(const std::vector<torch::Tensor>& values) override {
    std::vector<torch::Tensor> printed;
    for (const auto& value : values) printed.push_back(value.to(printed_as(value.scalar_type())));
    std::string lines;
    for (std::int64_t row = 0; row < printed.front().size(0); ++row) {
      lines += std::to_string(samples_.at(written_++));
      for (const torch::Tensor& value : printed) append_row(value[row], lines);
      lines += '\n';
    }
    file_->write(lines);
  }

  std::vector<fs::path> finish() override {
    file_->commit();
    return {path_};
  }

 private:
  static void append_row(const torch::Tensor& row, std::string& line) {
    switch (row.scalar_type()) {
      case torch::kInt64:
        return append_cells<std::int64_t>(row, line);
      case torch::kFloat64:
        return append_cells<double>(row, line);
      default:
        return append_cells<float>(row, line);
    }
  }

  fs::path path_;
  std::vector<std::int64_t> samples_;
  std::optional<AtomicFile> file_;
  std::size_t written_ = 0;
};

// Padded sequences have another length in every batch.
std::string advice_for(const torch::Tensor& values, const OutputColumn& column) {
  const auto dimensions = static_cast<std::int64_t>(column.shape.size());
  if (values.scalar_type() != column.type || values.dim() != dimensions || dimensions < 2)
    return "";
  return fmt::format(
      "; all rows of a file have one shape. If these are padded sequences, put all samples into "
      "one batch, so that they get the same length: set the loader's batch_size (or "
      "global_batch_size) to {}",
      column.shape.front());
}

std::unique_ptr<PredictionFormat> format_for(const PredictionFileOptions& options) {
  const std::string ending = options.path.extension().string();
  if (ending == ".npy") return std::make_unique<NpyFormat>(options.path);
  if (ending == ".h5" || ending == ".hdf5") return hdf5_format(options.path);
  if (ending == ".csv") return std::make_unique<CsvFormat>(options.path, options.samples);
  throw ConfigError("--output: expected a name that ends with .npy, .h5 or .csv, got '{}'",
                    options.path.string());
}

// NumPy and HDF5 have no bfloat16. Every one of its numbers is a float, too.
torch::Tensor storable(const torch::Tensor& values) {
  const torch::Tensor plain = values.detach().cpu();
  return plain.scalar_type() == torch::kBFloat16 ? plain.to(torch::kFloat32) : plain;
}

}  // namespace

PredictionFile::PredictionFile(PredictionFileOptions options)
    : options_(std::move(options)), format_(format_for(options_)) {
  const fs::path folder = options_.path.parent_path();
  if (!folder.empty() && !fs::is_directory(folder)) {
    throw ConfigError("--output: {}: there is no such folder", folder.string());
  }
  std::set<std::string> seen;
  for (const std::string& key : options_.keys) {
    if (!seen.insert(key).second) throw ConfigError("--keys: '{}' is there twice", key);
  }
}

PredictionFile::~PredictionFile() = default;

void PredictionFile::begin(const Batch& outputs) {
  const auto rows = static_cast<std::int64_t>(options_.samples.size());
  for (const std::string& key : options_.keys.empty() ? outputs.keys() : options_.keys) {
    if (outputs.contains(key) && outputs.find(key) == nullptr) {
      throw DataError(
          "output '{}': expected a tensor, got {}, which a table cannot hold; choose other outputs "
          "with --keys",
          key, outputs.find_list(key) != nullptr ? "a list of tensors" : "a nested batch");
    }
    const torch::Tensor values = storable(outputs[key]);
    if (values.dim() == 0) {
      throw DataError("output '{}': expected one row per sample, got a single number", key);
    }
    std::vector<std::int64_t> shape = values.sizes().vec();
    shape.front() = rows;
    columns_.push_back({.key = key, .type = values.scalar_type(), .shape = std::move(shape)});
  }
  if (columns_.empty())
    throw DataError("the model's outputs have no key, so there is nothing to write");
  format_->begin(columns_);
}

void PredictionFile::write(const Batch& outputs) {
  if (columns_.empty()) begin(outputs);
  std::vector<torch::Tensor> all;
  for (const OutputColumn& column : columns_) {
    const torch::Tensor values = storable(outputs[column.key]);
    auto expected = column.shape;
    expected.front() = all.empty() ? (values.dim() > 0 ? values.size(0) : 0) : all.front().size(0);
    if (values.scalar_type() != column.type || values.sizes() != torch::IntArrayRef(expected)) {
      throw DataError("output '{}': expected {} for samples from {} on, got {}{}", column.key,
                      data::describe(torch::empty(expected, column.type)), written_,
                      data::describe(values), advice_for(values, column));
    }
    all.push_back(values);
  }
  const auto rows = static_cast<std::int64_t>(options_.samples.size());
  if (written_ + all.front().size(0) > rows) {
    throw DataError("output '{}': expected one row for each of {} samples, got {} or more",
                    columns_.front().key, rows, written_ + all.front().size(0));
  }
  format_->write(all);
  written_ += all.front().size(0);
}

std::vector<fs::path> PredictionFile::finish() {
  if (written_ != static_cast<std::int64_t>(options_.samples.size()) || columns_.empty()) {
    throw DataError("{}: expected one row for each of {} samples, got {}", options_.path.string(),
                    options_.samples.size(), written_);
  }
  return format_->finish();
}

}  // namespace lockstep::recipe
