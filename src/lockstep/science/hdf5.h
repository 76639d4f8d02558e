// Fields in HDF5 files: lists their datasets, reads parts of them as tensors, writes tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

namespace lockstep::science {

// A block of a dataset: `count` elements from `start` on in each dimension, every `stride`-th one.
struct Block {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> count;
  std::vector<std::int64_t> stride;
};

// A file to read from. Any thread may read, also after a fork. Files are opened when they are
// needed, and only a few are open at a time, so a program may have thousands of these objects. The
// files that were used last stay open.
class Hdf5File {
 public:
  // Throws DataError naming the file, and why it cannot be opened.
  explicit Hdf5File(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }

  // Names of the datasets at the top level, sorted.
  std::vector<std::string> names() const;

  // Throws DataError, naming file and dataset, if there is no such dataset (with the nearest name),
  // if it holds something else than integers or floats (with its type), or if it has more numbers
  // than the file.
  std::vector<std::int64_t> shape(const std::string& name) const;

  // As float32. Throws DataError as shape() does, and if the block is not inside the dataset.
  torch::Tensor read(const std::string& name, const Block& block) const;
  torch::Tensor read(const std::string& name) const;  // all of it

  // The type of read_rows(): that of the dataset. Floats of 16 bits become float32, unsigned
  // integers of 16 bits int32, and larger ones int64, in which numbers from 2^63 on become 2^63-1.
  torch::ScalarType type(const std::string& name) const;

  // Some rows of a dataset, in any order: [rows.size(), …] of its own type. Throws DataError as
  // shape() does, and if a row is not in the dataset.
  torch::Tensor read_rows(const std::string& name, std::span<const std::int64_t> rows) const;

  // All rows, by one read and without a list of them.
  torch::Tensor read_rows(const std::string& name) const;

 private:
  struct Use;

  std::filesystem::path path_;
  std::shared_ptr<const Use> use_;
};

// Writes tensors of float or double as datasets of a new file, which is complete or not there.
void write_hdf5(const std::filesystem::path& path,
                const std::vector<std::pair<std::string, torch::Tensor>>& datasets);

// Writes datasets of a new file row by row, so that they may be larger than the memory. The file is
// complete or not there.
class Hdf5Writer {
 public:
  // Throws DataError if the file cannot be created.
  explicit Hdf5Writer(std::filesystem::path path);
  ~Hdf5Writer();  // without finish(), removes the file

  // Adds a dataset of this shape, whose first size is the number of its rows. Numbers of 16 bits
  // are stored as float, and true and false as the bytes 1 and 0. Throws DataError if the type is
  // another one than these, float, double and integers.
  void add(const std::string& name, torch::ScalarType type, const std::vector<std::int64_t>& shape);

  // Throws DataError, naming file and dataset, if type or shape of the rows differ from those of
  // the dataset, if there are more rows than it has, or if they cannot be written.
  void append(const std::string& name, const torch::Tensor& rows);

  // Throws DataError if a dataset lacks rows.
  void finish();

 private:
  struct OpenFile;

  std::filesystem::path path_;
  std::unique_ptr<OpenFile> open_;
};

}  // namespace lockstep::science
