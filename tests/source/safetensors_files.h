// Makes files of the format safetensors for tests.
#pragma once

#include <cstdint>
#include <string>

#include <torch/types.h>

namespace lockstep::data {

// A file with this text as its header.
inline std::string safetensors_file(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

// x: F32 [2, 3] of 0 to 5, y: I64 [2] of 7 and 8.
inline std::string small_safetensors() {
  const torch::Tensor x = torch::arange(6, torch::kFloat32), y = torch::arange(7, 9);
  const auto bytes = [](const torch::Tensor& tensor) {
    return std::string(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  };
  return safetensors_file(R"({"__metadata__": {"format": "pt"},)"
                          R"( "x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},)"
                          R"( "y": {"dtype": "I64", "shape": [2], "data_offsets": [24, 40]}})",
                          bytes(x) + bytes(y));
}

}  // namespace lockstep::data
