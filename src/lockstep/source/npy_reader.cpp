#include "lockstep/source/npy_reader.h"

#include <cctype>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::size_t kLongestNpyHeader = 1 << 16;

// Reads the literal of a Python dictionary that numpy.save writes, and nothing else of Python:
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class NpyHeaderText {
 public:
  explicit NpyHeaderText(std::string_view text) : text_(text) {}

  NpyHeader read() {
    NpyHeader header;
    bool has_type = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !std::exchange(has_type, true)) {
        header.number = number();
      } else if (key == "fortran_order" && !std::exchange(has_order, true)) {
        header.is_column_major = boolean();
      } else if (key == "shape" && !std::exchange(has_shape, true)) {
        header.shape = sizes();
      } else {
        fail("the keys descr, fortran_order and shape, each once");
      }
      if (!accept(',') && next() != '}') fail("',' or '}'");
    }
    next();
    if (at_ < text_.size()) fail("the end of the header");
    if (!has_type || !has_order || !has_shape) {
      fail("the keys descr, fortran_order and shape, each once");
    }
    return header;
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    throw DataError("the header of the array: expected {} at character {} of \"{}\"", expected, at_,
                    excerpt(text_, kShown));
  }

  // The next character that is not a space; 0 at the end.
  char next() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char wanted) {
    if (next() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail(fmt::format("'{}'", wanted));
  }

  std::string quoted() {
    const char quote = next();
    if (quote != '\'' && quote != '"') fail("text in quotes");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("text that ends with a quote");
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }

  bool boolean() {
    next();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true},
                                      std::pair<std::string_view, bool>{"False", false}}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    fail("True or False");
  }

  std::vector<std::int64_t> sizes() {
    std::vector<std::int64_t> shape;
    expect('(');
    while (!accept(')')) {
      shape.push_back(integer());
      if (!accept(',') && next() != ')') fail("',' or ')'");
    }
    return shape;
  }

  std::int64_t integer() {
    if (std::isdigit(static_cast<unsigned char>(next())) == 0) fail("a size of the array");
    std::int64_t value = 0;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0; ++at_) {
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
          __builtin_add_overflow(value, std::int64_t{text_[at_] - '0'}, &value)) {
        fail("a size below 2^63");
      }
    }
    return value;
  }

  StoredNumber number() {
    if (next() == '[') {
      throw DataError(
          "its type is structured, with several fields: expected numbers; save each field as an "
          "array of its own: numpy.save('x.npy', array['x'])");
    }
    const std::string name = quoted();
    if (const auto number = number_of(name)) return *number;
    throw DataError(
        "its type is '{}'{}: expected bool, integers, float16, float32, float64 or complex "
        "numbers; convert it in Python with array.astype(…)",
        excerpt(name), kind_of(name));
  }

  static std::string_view kind_of(std::string_view name) {
    switch (name.size() > 1 ? name[1] : '\0') {
      case 'O':
        return ", Python's objects, which are never run";
      case 'U':
      case 'S':
        return ", text";
      case 'M':
      case 'm':
        return ", dates or times";
      case 'V':
        return ", raw bytes";
      default:
        return "";
    }
  }

  static std::optional<StoredNumber> number_of(std::string_view name) {
    struct Known {
      std::string_view name;  // without the byte order
      StoredNumber number;
    };
    static const Known known[] = {
        {"b1", {torch::kBool, 1}},         {"i1", {torch::kInt8, 1}},
        {"i2", {torch::kInt16, 2}},        {"i4", {torch::kInt32, 4}},
        {"i8", {torch::kInt64, 8}},        {"u1", {torch::kUInt8, 1}},
        {"u2", {torch::kInt32, 2, true}},  {"u4", {torch::kInt64, 4, true}},
        {"u8", {torch::kInt64, 8, true}},  {"f2", {torch::kFloat16, 2}},
        {"f4", {torch::kFloat32, 4}},      {"f8", {torch::kFloat64, 8}},
        {"c8", {torch::kComplexFloat, 8}}, {"c16", {torch::kComplexDouble, 16}},
    };
    if (name.empty() || std::string_view("<>|=").find(name[0]) == std::string_view::npos) {
      return std::nullopt;
    }
    for (Known entry : known) {
      if (entry.name != name.substr(1)) continue;
      // "=" is the order of this machine. "|" says that there is none.
      if (name[0] == '|' && entry.number.bytes > 1) return std::nullopt;
      entry.number.is_swapped = name[0] == '>' && entry.number.bytes > 1;
      return entry.number;
    }
    return std::nullopt;
  }

  static constexpr std::size_t kShown = 120;

  std::string_view text_;
  std::size_t at_ = 0;
};

StoredArray array_after(const NpyHeader& header, std::span<const char> bytes,
                        std::shared_ptr<const void> owner) {
  return {.number = header.number,
          .shape = header.shape,
          .is_column_major = header.is_column_major,
          .bytes = bytes,
          .owner = std::move(owner)};
}

void check_length(const NpyHeader& header, std::uint64_t left) {
  if (header.bytes == left) return;
  throw DataError("its header says [{}] {} numbers of {} bytes, {} bytes in all, but {} follow",
                  fmt::join(header.shape, ", "), c10::toString(header.number.type),
                  header.number.bytes, header.bytes, left);
}

// An .npy file that is in memory as a whole.
torch::Tensor npy_tensor(std::span<const char> file, std::shared_ptr<const void> owner,
                         Alignment alignment) {
  const std::size_t size = npy_header_size(file.first(std::min(kNpyStart, file.size())));
  if (size > file.size()) {
    throw DataError("its header is {} bytes long, but the file has only {}", size, file.size());
  }
  const NpyHeader header = parse_npy_header(file.first(size));
  const auto bytes = file.subspan(size);
  check_length(header, bytes.size());
  return tensor_of(array_after(header, bytes, std::move(owner)), alignment);
}

torch::Tensor unpacked_npy(const ZipMember& member) {
  ZipReader reader(member);
  std::string text(std::min<std::uint64_t>(kNpyStart, member.size), '\0');
  reader.read(text);
  const std::size_t start = text.size();
  const std::size_t size = npy_header_size(text);
  if (size > member.size) {
    throw DataError("its header is {} bytes long, but the array has only {}", size, member.size);
  }
  text.resize(size);
  if (size > start) reader.read(std::span(text).subspan(start));
  const NpyHeader header = parse_npy_header(text);
  check_length(header, member.size - size);
  const auto memory = std::make_shared<torch::Tensor>(
      torch::empty({static_cast<std::int64_t>(header.bytes)}, torch::kUInt8));
  const std::span bytes(static_cast<char*>(memory->data_ptr()),
                        static_cast<std::size_t>(header.bytes));
  reader.read(bytes);
  reader.finish();
  return tensor_of(array_after(header, bytes, memory));
}

constexpr std::string_view kNpySuffix = ".npy";

std::string array_name(const ZipMember& member) {
  return member.name.substr(0, member.name.size() - kNpySuffix.size());
}

}  // namespace

std::size_t npy_header_size(std::span<const char> start) {
  const std::string_view text(start.data(), start.size());
  if (text.size() < kNpyStart || !text.starts_with(kNpyMagic)) {
    throw DataError("not an .npy file: it does not begin with \"\\x93NUMPY\" and a header");
  }
  const auto byte = [&](std::size_t at) { return static_cast<std::size_t>(start[at] & 0xff); };
  const std::size_t version = byte(6);
  if (version < 1 || version > 3) {
    throw DataError("version {}.{} of the .npy format: expected 1.0, 2.0 or 3.0", version, byte(7));
  }
  std::size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > kLongestNpyHeader) {
    throw DataError("its header is {} bytes long, expected at most {}", length, kLongestNpyHeader);
  }
  const std::size_t size = (version == 1 ? 10 : 12) + length;
  // A shorter one could not say anything, and callers have read this much.
  if (size < kNpyStart) throw DataError("its header is empty");
  return size;
}

NpyHeader parse_npy_header(std::span<const char> header) {
  const std::size_t begin = header[6] == 1 ? 10 : 12;
  NpyHeader parsed = NpyHeaderText({header.data() + begin, header.size() - begin}).read();
  const auto bytes = bytes_of(parsed.shape, parsed.number);
  if (!bytes) {
    throw DataError("its shape [{}] is more than a file can hold", fmt::join(parsed.shape, ", "));
  }
  parsed.bytes = *bytes;
  return parsed;
}

torch::Tensor read_npy(const std::filesystem::path& path, Alignment alignment) {
  return reading<DataError>({.path = path}, [&] {
    const auto file = std::make_shared<const MappedFile>(path);
    return npy_tensor(file->bytes(), file, alignment);
  });
}

NpzFile::NpzFile(const std::filesystem::path& path)
    : file_(std::make_shared<const MappedFile>(path)) {
  members_ = reading<DataError>({.path = path}, [&] { return read_zip(file_->bytes()); });
  std::erase_if(members_, [](const ZipMember& m) { return !m.name.ends_with(kNpySuffix); });
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> names;
  for (const ZipMember& member : members_) names.push_back(array_name(member));
  return names;
}

torch::Tensor NpzFile::read(const std::string& name, Alignment alignment) const {
  for (const ZipMember& member : members_) {
    if (array_name(member) != name) continue;
    const std::filesystem::path where =
        fmt::format("{}: array '{}'", file_->path().string(), printable(name));
    return reading<DataError>({.path = where}, [&] {
      return member.is_stored() ? npy_tensor(member.packed, file_, alignment)
                                : unpacked_npy(member);
    });
  }
  throw DataError("{}: there is no array '{}'; {}", file_->path().string(), name,
                  suggest(name, names()));
}

}  // namespace lockstep::data
