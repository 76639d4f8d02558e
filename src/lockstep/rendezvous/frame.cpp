#include "lockstep/rendezvous/frame.h"

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {
namespace {

constexpr std::string_view kMagic = "LkSt";
constexpr std::uint64_t kVersion = 2;

// Writes little-endian on every machine.
void put(std::string& out, std::uint64_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

std::uint64_t get(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

}  // namespace

std::string encode_frame(FrameKind kind, std::string_view payload) {
  if (payload.size() > kLargestPayload) {
    throw CommError("a message of {} bytes is too large: at most {} can be sent", payload.size(),
                    kLargestPayload);
  }
  std::string frame(kMagic);
  frame.reserve(kFrameHeaderSize + payload.size());
  put(frame, kVersion, 2);
  put(frame, static_cast<std::uint64_t>(kind), 2);
  put(frame, payload.size(), 4);
  frame.append(payload);
  return frame;
}

std::optional<Frame> FrameReader::next(std::size_t largest) {
  const std::string_view rest = std::string_view(bytes_).substr(done_);
  const std::string_view magic = rest.substr(0, kMagic.size());
  if (magic != kMagic.substr(0, magic.size())) throw CommError("not a message of Lockstep");
  std::optional<Frame> frame;
  if (rest.size() >= kFrameHeaderSize) {
    const std::uint64_t version = get(rest.substr(4, 2));
    const std::uint64_t size = get(rest.substr(8, 4));
    if (version != kVersion) {
      throw OtherVersion(version, kVersion);
    }
    if (size > largest) {
      throw CommError("a message of {} bytes, expected at most {}", size, largest);
    }
    if (rest.size() - kFrameHeaderSize >= size) {
      frame = Frame{.kind = static_cast<FrameKind>(get(rest.substr(6, 2))),
                    .payload = std::string(rest.substr(kFrameHeaderSize, size))};
      done_ += kFrameHeaderSize + size;
    }
  }
  if (!frame || done_ == bytes_.size()) {
    bytes_.erase(0, done_);
    done_ = 0;
  }
  return frame;
}

FieldWriter& FieldWriter::integer(std::int64_t value) {
  put(payload_, static_cast<std::uint64_t>(value), 8);
  return *this;
}

FieldWriter& FieldWriter::text(std::string_view value) {
  integer(static_cast<std::int64_t>(value.size()));
  payload_.append(value);
  return *this;
}

std::string_view FieldReader::take(std::size_t size) {
  if (size > rest_.size()) {
    throw CommError("a message ends {} bytes before its fields do", size - rest_.size());
  }
  const std::string_view taken = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return taken;
}

std::int64_t FieldReader::integer() {
  return static_cast<std::int64_t>(get(take(8)));
}

std::string FieldReader::text() {
  return std::string(take(static_cast<std::size_t>(integer())));
}

}  // namespace lockstep::rendezvous
