#include "lockstep/source/idx.h"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/source/byte_reader.h"
#include "lockstep/source/stored_array.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kMaxDimensions = 8;

struct IdxHeader {
  StoredNumber number;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;  // that must follow the header
};

StoredNumber idx_number(const std::string& file, std::uint8_t code) {
  const auto number = [](torch::ScalarType type) -> StoredNumber {
    const std::size_t bytes = c10::elementSize(type);
    return {.type = type, .bytes = bytes, .is_swapped = bytes > 1};
  };
  switch (code) {
    case 0x08:
      return number(torch::kUInt8);
    case 0x09:
      return number(torch::kInt8);
    case 0x0b:
      return number(torch::kInt16);
    case 0x0c:
      return number(torch::kInt32);
    case 0x0d:
      return number(torch::kFloat32);
    case 0x0e:
      return number(torch::kFloat64);
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
  IdxHeader header{.number = idx_number(file, magic[2])};
  const std::size_t dimensions = magic[3];
  if (dimensions == 0 || dimensions > kMaxDimensions) {
    throw DataError("{}: {} dimensions: expected 1 to {}", file, dimensions, kMaxDimensions);
  }

  for (std::size_t d = 0; d < dimensions; ++d) {
    std::array<std::uint8_t, 4> raw{};
    read_header_bytes(reader, file, raw);
    const std::uint64_t size = std::uint64_t{raw[0]} << 24 | std::uint64_t{raw[1]} << 16 |
                               std::uint64_t{raw[2]} << 8 | raw[3];
    header.shape.push_back(static_cast<std::int64_t>(size));
  }
  const auto bytes = bytes_of(header.shape, header.number);
  if (!bytes) {
    throw DataError("{}: dimensions [{}] are more than a file can hold", file,
                    fmt::join(header.shape, ", "));
  }
  header.bytes = *bytes;
  return header;
}

torch::Tensor read_idx_file(const std::filesystem::path& path) {
  const std::string file = path.string();
  ByteReader reader(path);
  const IdxHeader header = read_header(reader, file);
  const auto promised = [&] {
    return fmt::format("dimensions [{}] of {} need {} bytes", fmt::join(header.shape, ", "),
                       c10::toString(header.number.type), header.bytes);
  };
  if (header.bytes > reader.at_most_left()) {
    throw DataError("{}: {}, but {} {} follow", file, promised(),
                    reader.packed() ? "at most" : "only", reader.at_most_left());
  }

  const auto memory = std::make_shared<torch::Tensor>(
      torch::empty({static_cast<std::int64_t>(header.bytes)}, torch::kUInt8));
  const std::span bytes(static_cast<char*>(memory->data_ptr()),
                        static_cast<std::size_t>(header.bytes));
  const std::size_t got = reader.read(bytes);
  if (got < header.bytes) throw DataError("{}: {}, but only {} follow", file, promised(), got);
  char extra = 0;
  if (reader.read({&extra, 1}) != 0) throw DataError("{}: {}, but more follow", file, promised());
  return tensor_of(
      {.number = header.number, .shape = header.shape, .bytes = bytes, .owner = memory});
}

}  // namespace

torch::Tensor read_idx(const std::filesystem::path& path) {
  return reading<DataError>({.path = path}, [&] { return read_idx_file(path); });
}

}  // namespace lockstep::data
