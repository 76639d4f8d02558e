// Reads protobuf's wire format: the counterpart of log/proto.h, for files that were written with
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep {

// One field of a message. Which of the values is set depends on the type in the file.
struct ProtoField {
  int number = 0;
  std::uint64_t raw = 0;        // of a number: its bits
  std::string_view bytes = {};  // of a string, bytes or a message; it points into the input
  bool is_bytes = false;        // whether `bytes` is the value

  std::int64_t integer() const { return static_cast<std::int64_t>(raw); }
  float float32() const;
  double float64() const;
};

// Goes through the fields of one message, which must exist as long as its fields are used.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view message) : rest_(message) {}

  // The next field, or nothing at the end. Throws DataError if the message is damaged.
  std::optional<ProtoField> next();

 private:
  std::uint64_t varint();
  std::string_view take(std::uint64_t count);

  std::string_view rest_;
};

// The fields of an encoded message, up to the first one that cannot be read. They refer to
// `encoded`.
std::vector<ProtoField> read_proto(std::string_view encoded);

}  // namespace lockstep
