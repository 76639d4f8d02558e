#include "lockstep/source/npy.h"

#include <bit>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/describe.h"

namespace lockstep::data {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they are");

std::string type_name(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat16:
      return "<f2";
    case torch::kFloat32:
      return "<f4";
    case torch::kFloat64:
      return "<f8";
    case torch::kInt8:
      return "|i1";
    case torch::kInt16:
      return "<i2";
    case torch::kInt32:
      return "<i4";
    case torch::kInt64:
      return "<i8";
    case torch::kUInt8:
      return "|u1";
    case torch::kBool:
      return "|b1";
    case torch::kComplexFloat:
      return "<c8";
    case torch::kComplexDouble:
      return "<c16";
    default:
      throw DataError("npy: NumPy has no numbers of the type {}", c10::toString(type));
  }
}

// As Python prints a tuple: "()", "(3,)", "(3, 4)".
std::string tuple_of(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const std::int64_t size : shape) sizes.push_back(std::to_string(size));
  return fmt::format("({}{})", join(sizes, ", "), sizes.size() == 1 ? "," : "");
}

std::vector<std::int64_t> with_rows(std::vector<std::int64_t> shape, std::int64_t rows) {
  shape.front() = rows;
  return shape;
}

}  // namespace

std::string npy_header(torch::ScalarType type, const std::vector<std::int64_t>& shape) {
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}",
                                 type_name(type), tuple_of(shape));
  // NumPy leaves room for 21 digits of the number of rows, so that rows can be appended in place.
  constexpr std::size_t kDigits = 21;
  if (!shape.empty()) text.append(kDigits - std::to_string(shape.front()).size(), ' ');
  // The numbers begin at a multiple of 64 bytes.
  constexpr std::size_t kAlignment = 64;
  const std::string magic("\x93NUMPY\x01\x00", 8);
  const std::size_t unpadded = magic.size() + 2 + text.size() + 1;
  text.append(kAlignment - unpadded % kAlignment, ' ');
  text += '\n';
  const auto length = static_cast<std::uint16_t>(text.size());
  return magic + static_cast<char>(length & 0xff) + static_cast<char>(length >> 8) + text;
}

NpyFile::NpyFile(const std::filesystem::path& path, torch::ScalarType type,
                 std::vector<std::int64_t> shape)
    : file_(path), type_(type), shape_(std::move(shape)) {
  if (shape_.empty()) throw DataError("{}: expected an array with rows", path.string());
  file_.write(npy_header(type_, shape_));
}

void NpyFile::append(const torch::Tensor& rows) {
  const torch::Tensor values = rows.detach().cpu().contiguous();
  const std::int64_t count = values.dim() > 0 ? values.size(0) : 0;
  const auto expected = with_rows(shape_, count);
  if (values.scalar_type() != type_ || values.sizes() != torch::IntArrayRef(expected)) {
    throw DataError("{}: expected rows of {}, got {}", path().string(),
                    describe(torch::empty(expected, type_)), describe(values));
  }
  if (written_ + count > shape_.front()) {
    throw DataError("{}: expected {} rows, got {} or more", path().string(), shape_.front(),
                    written_ + count);
  }
  if (values.numel() > 0) {
    file_.write({static_cast<const char*>(values.data_ptr()), values.nbytes()});
  }
  written_ += count;
}

void NpyFile::finish() {
  if (written_ != shape_.front()) {
    throw DataError("{}: expected {} rows, got {}", path().string(), shape_.front(), written_);
  }
  file_.commit();
}

}  // namespace lockstep::data
