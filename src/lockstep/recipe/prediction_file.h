// The file of `lockstep predict`: one row per sample, written batch after batch, so that it may be
// larger than the memory. It is complete or not there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/batch.h"

namespace lockstep::recipe {

// One output of the model, for all samples.
struct OutputColumn {
  std::string key;
  torch::ScalarType type = torch::kFloat32;
  std::vector<std::int64_t> shape = {};  // the first size is the number of samples
};

// How rows are stored. A format creates its files in begin().
class PredictionFormat {
 public:
  virtual ~PredictionFormat() = default;
  virtual void begin(const std::vector<OutputColumn>& columns) = 0;
  // The next rows, one tensor per column, with the types and shapes of the columns.
  virtual void write(const std::vector<torch::Tensor>& values) = 0;
  // Gives the files their names, and returns these.
  virtual std::vector<std::filesystem::path> finish() = 0;
};

// Datasets by key. Throws ConfigError in a build without the component `science`.
std::unique_ptr<PredictionFormat> hdf5_format(const std::filesystem::path& path);

struct PredictionFileOptions {
  std::filesystem::path path;          // its ending decides the format: .npy, .h5, .hdf5 or .csv
  std::vector<std::string> keys = {};  // of the outputs; none: all of them
  std::vector<std::int64_t> samples = {};  // index of each row's sample in the data set, for .csv
};

class PredictionFile {
 public:
  // Throws ConfigError if the ending is unknown, the folder does not exist, or a key is there
  // twice.
  explicit PredictionFile(PredictionFileOptions options);
  ~PredictionFile();

  // The next samples. Throws ConfigError, with the nearest key, if an output is missing, and
  // DataError if an output does not have one row per sample, or another type or shape than in the
  // first batch.
  void write(const Batch& outputs);

  // Returns the files that were written. Throws DataError if rows are missing.
  std::vector<std::filesystem::path> finish();

 private:
  void begin(const Batch& outputs);

  PredictionFileOptions options_;
  std::unique_ptr<PredictionFormat> format_;
  std::vector<OutputColumn> columns_;  // empty before the first batch
  std::int64_t written_ = 0;
};

}  // namespace lockstep::recipe
