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

// A file opened for reading. Any thread may use it, also after a fork: HDF5 itself is locked, and a
// process that did not open the file opens it anew.
class Hdf5File {
 public:
  // Throws DataError naming the file where it cannot be opened.
  explicit Hdf5File(std::filesystem::path path);
  ~Hdf5File();
  Hdf5File(Hdf5File&&) noexcept;
  Hdf5File& operator=(Hdf5File&&) noexcept;

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
  struct Handles;

  std::filesystem::path path_;
  mutable std::unique_ptr<Handles> handles_;  // of this process
};

// Writes tensors of float or double as datasets of a new file, whole or not at all.
void write_hdf5(const std::filesystem::path& path,
                const std::vector<std::pair<std::string, torch::Tensor>>& datasets);

}  // namespace lockstep::science
