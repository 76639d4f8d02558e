// Fields in HDF5 files: what is in one, parts of it as tensors, and tensors as one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
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

// A file to read from, by any thread, also after a fork. Files are opened when they are needed and
// few at a time, so that there may be thousands; what is read again and again stays open.
class Hdf5File {
 public:
  // Throws DataError naming the file, and why it cannot be opened.
  explicit Hdf5File(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }

  // Names of the datasets at the top, in the order of their names.
  std::vector<std::string> names() const;

  // Throws DataError naming file and dataset where it is not there (with the nearest name), or not
  // made of numbers.
  std::vector<std::int64_t> shape(const std::string& name) const;

  // As float32. Throws DataError likewise, and where the block is not in it.
  torch::Tensor read(const std::string& name, const Block& block) const;
  torch::Tensor read(const std::string& name) const;  // all of it

 private:
  struct Use;

  std::filesystem::path path_;
  std::shared_ptr<const Use> use_;
};

// Writes tensors of float or double as datasets of a new file, whole or not at all.
void write_hdf5(const std::filesystem::path& path,
                const std::vector<std::pair<std::string, torch::Tensor>>& datasets);

}  // namespace lockstep::science
