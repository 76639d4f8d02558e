#include "lockstep/source/byte_reader.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <unistd.h>
#include <zlib.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::data {
namespace fs = std::filesystem;

class ByteReader::Source {
 public:
  virtual ~Source() = default;
  virtual std::size_t read(std::span<char> out) = 0;
  virtual std::uint64_t at_most_left() const = 0;
  virtual bool packed() const = 0;
};

class ByteReader::Plain : public Source {
 public:
  explicit Plain(const fs::path& path)
      : path_(path), file_(open_regular_file(path)), left_(file_.size) {}

  std::size_t read(std::span<char> out) override {
    const std::size_t got =
        reading<DataError>({.path = path_}, [&] { return read_some(file_.descriptor, out); });
    left_ -= std::min<std::uint64_t>(left_, got);
    return got;
  }

  std::uint64_t at_most_left() const override { return left_; }
  bool packed() const override { return false; }
  const fs::path& path() const { return path_; }

  std::uint64_t size() const { return file_.size; }

  // Does not move the position from which bytes are read.
  bool is_gzip() const {
    std::array<unsigned char, 2> start{};
    return ::pread(file_.descriptor.get(), start.data(), start.size(), 0) == 2 &&
           start[0] == 0x1f && start[1] == 0x8b;
  }

 private:
  fs::path path_;
  OpenedFile file_;
  std::uint64_t left_;
};

class ByteReader::Gzip : public Source {
 public:
  explicit Gzip(std::unique_ptr<Plain> file) : file_(std::move(file)) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) throw Error("zlib: cannot start to inflate");
    constexpr std::uint64_t kSmall = 64 << 20, kHonestRatio = 100;
    left_ = kSmall + kHonestRatio * file_->at_most_left();
  }
  ~Gzip() override { inflateEnd(&stream_); }

  std::size_t read(std::span<char> out) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    std::size_t left = out.size();
    while (left > 0 && !ended_) {
      if (stream_.avail_in == 0) refill();
      // zlib counts in 32 bits.
      const std::size_t piece = std::min<std::size_t>(left, 1U << 30);
      stream_.avail_out = static_cast<uInt>(piece);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      left -= piece - stream_.avail_out;
      if (status == Z_STREAM_END) {
        end_member();
      } else if (status != Z_OK) {
        throw DataError("{}: damaged gzip: {}", file_->path().string(),
                        stream_.msg != nullptr ? stream_.msg : zError(status));
      }
    }
    const std::size_t got = out.size() - left;
    if (got > left_) {
      throw DataError(
          "{}: its {} packed bytes unpack to more than 100 times as many, which looks like an "
          "attack; unpack it by hand if you trust it",
          file_->path().string(), file_->size());
    }
    left_ -= got;
    return got;
  }

  std::uint64_t at_most_left() const override { return left_; }

  bool packed() const override { return true; }

 private:
  void refill() {
    const std::size_t got = file_->read(buffer_);
    if (got == 0) {
      throw DataError("{}: the gzip file ends too early, after {} bytes", file_->path().string(),
                      file_->size());
    }
    stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
    stream_.avail_in = static_cast<uInt>(got);
  }

  // After a member of the gzip file there is another member, or the end.
  void end_member() {
    if (stream_.avail_in == 0 && file_->at_most_left() == 0) {
      ended_ = true;
    } else {
      inflateReset(&stream_);
    }
  }

  std::unique_ptr<Plain> file_;
  z_stream stream_{};
  std::array<char, 1 << 16> buffer_{};
  std::uint64_t left_ = 0;  // unpacked bytes that may still follow
  bool ended_ = false;
};

ByteReader::ByteReader(const fs::path& path) {
  auto file = std::make_unique<Plain>(path);
  if (file->is_gzip()) {
    source_ = std::make_unique<Gzip>(std::move(file));
  } else {
    source_ = std::move(file);
  }
}

ByteReader::~ByteReader() = default;

std::size_t ByteReader::read(std::span<char> out) {
  return source_->read(out);
}

std::uint64_t ByteReader::at_most_left() const {
  return source_->at_most_left();
}

bool ByteReader::packed() const {
  return source_->packed();
}

std::string read_unpacked(const fs::path& path) {
  ByteReader reader(path);
  std::string bytes;
  if (!reader.packed()) {
    bytes.resize(reader.at_most_left());
    bytes.resize(reader.read(bytes));
    return bytes;
  }
  // The limit of a gzip file is far above its size, so its memory grows with what was read.
  constexpr std::size_t kPiece = 4 << 20;
  for (std::size_t got = kPiece; got == kPiece;) {
    const std::size_t used = bytes.size();
    bytes.resize(used + kPiece);
    got = reader.read({bytes.data() + used, kPiece});
    bytes.resize(used + got);
  }
  return bytes;
}

}  // namespace lockstep::data
