// Reads a dictionary of NumPy's arrays of bytes and of lists that Python pickled, as the files of
// CIFAR are. Python's own reader calls any function that a pickle names. This one knows the few
// that make an array of bytes, and runs nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

struct PickledArray {
  std::vector<std::int64_t> shape;
  std::string bytes;  // in row-major order, as many as the shape says
};

struct ArrayPickle {
  std::map<std::string, PickledArray> arrays;              // of uint8
  std::map<std::string, std::vector<std::int64_t>> lists;  // of integers
};

// Other values of the dictionary, such as lists of names, are left out. Reads what Python 2 and 3
// write by protocols 2 to 5. Throws DataError, which names the byte, if the pickle is damaged or
// has anything else.
ArrayPickle read_array_pickle(std::string_view pickle);

}  // namespace lockstep::data
