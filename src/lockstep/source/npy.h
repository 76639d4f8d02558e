// Files of NumPy, written row by row: numpy.load(path) reads them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/base/file.h"

namespace lockstep::data {

// What is before the numbers of an array in row-major order: the bytes that numpy.save writes.
// Throws DataError for a type that NumPy does not have (bfloat16, quantized).
std::string npy_header(torch::ScalarType type, const std::vector<std::int64_t>& shape);

// An array whose number of rows is known before they are. The file is complete or not there.
class NpyFile {
 public:
  // `shape` is the shape of the whole array; its first size is the number of rows. Throws DataError
  // for a type that NumPy does not have or a shape without rows, and Error if the file cannot be
  // created.
  NpyFile(const std::filesystem::path& path, torch::ScalarType type,
          std::vector<std::int64_t> shape);

  const std::filesystem::path& path() const { return file_.path(); }

  // Throws DataError if type or shape of the rows differ from those of the file, or if there are
  // more rows than it has.
  void append(const torch::Tensor& rows);

  // Throws DataError if rows are missing.
  void finish();

 private:
  AtomicFile file_;
  torch::ScalarType type_;
  std::vector<std::int64_t> shape_;
  std::int64_t written_ = 0;
};

}  // namespace lockstep::data
