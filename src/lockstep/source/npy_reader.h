// Reads arrays that numpy.save and numpy.savez wrote: .npy, mapped, and .npz, an archive of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/source/mapped_file.h"
#include "lockstep/source/stored_array.h"
#include "lockstep/source/zip.h"

namespace lockstep::data {

// The array of an .npy file: a view of the file, or a copy in memory if numbers need a conversion
// (tensor_of). Types are bool, integers, float16, float32, float64 and complex numbers of these two
// sizes, in both byte orders; Fortran's order gives a tensor with such strides. uint16 becomes
// int32, uint32 and uint64 become int64. Throws DataError, which names the file and the place, if
// the file is damaged or has another type (structured, objects, text, dates). Nothing in a file is
// run.
torch::Tensor read_npy(const std::filesystem::path& path,
                       Alignment alignment = Alignment::kNatural);

// The arrays of an .npz file. Those of numpy.savez are views of the file. Their numbers begin
// anywhere in it, so with natural alignment they are usually copied. Those of
// numpy.savez_compressed are unpacked into memory, and their checksums are compared.
class NpzFile {
 public:
  // Throws DataError, which names the file, if it is not such an archive.
  explicit NpzFile(const std::filesystem::path& path);

  std::vector<std::string> names() const;  // as in Python, without ".npy"

  // Throws DataError, which names file and array, if there is no such array (with the nearest
  // name), or for the reasons of read_npy.
  torch::Tensor read(const std::string& name, Alignment alignment = Alignment::kNatural) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  std::vector<ZipMember> members_;
};

// The header of an .npy file.
struct NpyHeader {
  StoredNumber number;
  std::vector<std::int64_t> shape;
  bool is_column_major = false;
  std::uint64_t bytes = 0;  // of the numbers, which follow the header
};

// The first bytes of a file, from which npy_header_size() finds out how long the header is.
inline constexpr std::size_t kNpyStart = 12;
std::size_t npy_header_size(std::span<const char> start);

// `header` has npy_header_size() bytes. Throws DataError.
NpyHeader parse_npy_header(std::span<const char> header);

}  // namespace lockstep::data
