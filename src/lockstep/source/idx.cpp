#include "lockstep/source/idx.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/source/byte_reader.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kMaxDimensions = 8;

struct IdxHeader {
  torch::ScalarType type = torch::kUInt8;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;  // that must follow the header
};

torch::ScalarType scalar_type(const std::string& file, std::uint8_t code) {
  switch (code) {
    case 0x08:
      return torch::kUInt8;
    case 0x09:
      return torch::kInt8;
    case 0x0b:
      return torch::kInt16;
    case 0x0c:
      return torch::kInt32;
    case 0x0d:
      return torch::kFloat32;
    case 0x0e:
      return torch::kFloat64;
    default:
      throw DataError("{}: type code {:#04x}: expected 0x08, 0x09, 0x0b, 0x0c, 0x0d or 0x0e", file,
                      code);
  }
}

void read_header_bytes(ByteReader& reader, const std::string& file, std::span<std::uint8_t> out) {
  const std::size_t got = reader.read({reinterpret_cast<char*>(out.data()), out.size()});
  if (got < out.size()) {
    throw DataError("{}: ends inside the IDX header, {} bytes short", file, out.size() - got);
  }
}

IdxHeader read_header(ByteReader& reader, const std::string& file) {
  std::array<std::uint8_t, 4> magic{};
  read_header_bytes(reader, file, magic);
  if (magic[0] != 0 || magic[1] != 0) {
    throw DataError(
        "{}: not an IDX file: starts with {:02x} {:02x} {:02x} {:02x}, expected 00 00, a type and "
        "a "
        "number of dimensions",
        file, magic[0], magic[1], magic[2], magic[3]);
  }
  IdxHeader header{.type = scalar_type(file, magic[2])};
  const std::size_t dimensions = magic[3];
  if (dimensions == 0 || dimensions > kMaxDimensions) {
    throw DataError("{}: {} dimensions: expected 1 to {}", file, dimensions, kMaxDimensions);
  }

  header.bytes = c10::elementSize(header.type);
  bool overflow = false;
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::array<std::uint8_t, 4> raw{};
    read_header_bytes(reader, file, raw);
    const std::uint64_t size = std::uint64_t{raw[0]} << 24 | std::uint64_t{raw[1]} << 16 |
                               std::uint64_t{raw[2]} << 8 | raw[3];
    header.shape.push_back(static_cast<std::int64_t>(size));
    std::uint64_t product = 0;
    overflow |= __builtin_mul_overflow(header.bytes, size, &product);
    header.bytes = product;
  }
  if (overflow || header.bytes > std::numeric_limits<std::int64_t>::max()) {
    throw DataError("{}: dimensions [{}] are more than a file can hold", file,
                    fmt::join(header.shape, ", "));
  }
  return header;
}

template <typename Word>
void swap_words(void* data, std::int64_t count) {
  auto* words = static_cast<Word*>(data);
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (sizeof(Word) == 2) words[i] = __builtin_bswap16(words[i]);
    if constexpr (sizeof(Word) == 4) words[i] = __builtin_bswap32(words[i]);
    if constexpr (sizeof(Word) == 8) words[i] = __builtin_bswap64(words[i]);
  }
}

void from_big_endian(torch::Tensor& tensor) {
  if constexpr (std::endian::native == std::endian::big) return;
  switch (tensor.element_size()) {
    case 2:
      return swap_words<std::uint16_t>(tensor.data_ptr(), tensor.numel());
    case 4:
      return swap_words<std::uint32_t>(tensor.data_ptr(), tensor.numel());
    case 8:
      return swap_words<std::uint64_t>(tensor.data_ptr(), tensor.numel());
    default:
      return;
  }
}

}  // namespace

namespace {

torch::Tensor read_idx_file(const std::filesystem::path& path) {
  const std::string file = path.string();
  ByteReader reader(path);
  const IdxHeader header = read_header(reader, file);
  const auto promised = [&] {
    return fmt::format("dimensions [{}] of {} need {} bytes", fmt::join(header.shape, ", "),
                       c10::toString(header.type), header.bytes);
  };
  if (header.bytes > reader.at_most_left()) {
    throw DataError("{}: {}, but {} {} follow", file, promised(),
                    reader.packed() ? "at most" : "only", reader.at_most_left());
  }

  torch::Tensor tensor = torch::empty(header.shape, torch::dtype(header.type));
  const std::size_t got =
      reader.read({static_cast<char*>(tensor.data_ptr()), static_cast<std::size_t>(header.bytes)});
  if (got < header.bytes) throw DataError("{}: {}, but only {} follow", file, promised(), got);
  char extra = 0;
  if (reader.read({&extra, 1}) != 0) throw DataError("{}: {}, but more follow", file, promised());
  from_big_endian(tensor);
  return tensor;
}

}  // namespace

torch::Tensor read_idx(const std::filesystem::path& path) {
  return reading<DataError>({.path = path}, [&] { return read_idx_file(path); });
}

}  // namespace lockstep::data
