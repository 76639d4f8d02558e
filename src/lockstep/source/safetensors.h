// Reads files of the format safetensors: tensors by name, mapped. checkpoint/weights_file.h writes
// them.
//
//   const ls::data::SafetensorsFile file("model.safetensors");
//   for (const auto& name : file.names()) std::cout << name << file.read(name).sizes();
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include "lockstep/source/mapped_file.h"
#include "lockstep/source/stored_array.h"

namespace lockstep::data {

// How the format names a type of numbers. Writers sort tensors by the place of their type in the
// format's list, so that all numbers are aligned.
struct SafetensorsType {
  std::string_view name;  // "F32"
  std::size_t place = 0;
};
// Nothing if the format lacks the type.
std::optional<SafetensorsType> safetensors_type(torch::ScalarType type);

class SafetensorsFile {
 public:
  // Reads and checks the header. Throws DataError, which names the file and the tensor, if the
  // header is damaged, a tensor lies outside the file or over another one, or its size is not that
  // of its shape.
  explicit SafetensorsFile(const std::filesystem::path& path);

  std::vector<std::string> names() const;  // in the order of their bytes in the file

  // A view of the file, or a copy if numbers need a conversion (tensor_of). BF16 and F16 stay as
  // they are. Throws DataError, which names file and tensor, if there is no such tensor (with the
  // nearest name) or if its type is another one, such as F8.
  torch::Tensor read(const std::string& name, Alignment alignment = Alignment::kNatural) const;

 private:
  struct Entry {
    std::string name;
    std::string type;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  // in the bytes after the header
    std::uint64_t end = 0;
  };
  class Header;

  std::shared_ptr<const MappedFile> file_;
  std::uint64_t data_ = 0;  // where the bytes after the header begin
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> places_;  // of the names in entries_
};

}  // namespace lockstep::data
