// Reads event files back: record framing, checksums bit by bit, protobuf fields. It follows the
// descriptions of the formats and shares no code with the writer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file.h"

namespace lockstep::reader {

inline std::uint32_t masked_checksum(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const unsigned char byte : bytes) {
    crc ^= byte;
    for (int i = 0; i < 8; ++i) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

template <typename T>
T load(std::string_view bytes, std::size_t at) {
  T value;
  if (at + sizeof value > bytes.size()) throw std::runtime_error("truncated");
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// What to do if a file ends inside a record.
enum class TornEnd { kError, kSkip };

// The data of the records. Throws if a length or a checksum is wrong.
inline std::vector<std::string> read_records(std::string_view file, TornEnd torn_end) {
  std::vector<std::string> records;
  for (std::size_t at = 0; at < file.size();) {
    if (torn_end == TornEnd::kSkip) {
      const std::size_t rest = file.size() - at;
      if (rest < 12 || rest - 12 < load<std::uint64_t>(file, at) + 4) break;
    }
    const auto length = load<std::uint64_t>(file, at);
    if (load<std::uint32_t>(file, at + 8) != masked_checksum(file.substr(at, 8))) {
      throw std::runtime_error("the length's checksum is wrong");
    }
    if (length > file.size() - at - 16) throw std::runtime_error("truncated record");
    const std::string_view data = file.substr(at + 12, length);
    if (load<std::uint32_t>(file, at + 12 + length) != masked_checksum(data)) {
      throw std::runtime_error("the data's checksum is wrong");
    }
    records.emplace_back(data);
    at += 16 + length;
  }
  return records;
}

// The fields of a message: numbers as their raw bytes in 64 bits, all others as bytes.
struct Field {
  std::uint64_t number = 0;
  std::string bytes = {};
};

class Message {
 public:
  explicit Message(std::string_view bytes) {
    std::size_t at = 0;
    const auto varint = [&] {
      std::uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = load<std::uint8_t>(bytes, at++);
        value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
      }
    };
    while (at < bytes.size()) {
      const std::uint64_t key = varint();
      Field field;
      switch (key & 7) {
        case 0:
          field.number = varint();
          break;
        case 1:
          field.number = load<std::uint64_t>(bytes, at);
          at += 8;
          break;
        case 2: {
          const std::uint64_t length = varint();
          if (length > bytes.size() - at) throw std::runtime_error("truncated field");
          field.bytes = bytes.substr(at, length);
          at += length;
          break;
        }
        case 5:
          field.number = load<std::uint32_t>(bytes, at);
          at += 4;
          break;
        default:
          throw std::runtime_error("unknown wire type");
      }
      fields_[static_cast<int>(key >> 3)].push_back(field);
    }
  }

  bool has(int field) const { return fields_.count(field) != 0; }
  std::int64_t integer(int field) const { return static_cast<std::int64_t>(one(field).number); }
  double float64(int field) const { return cast<double>(one(field).number); }
  float float32(int field) const {
    return cast<float>(static_cast<std::uint32_t>(one(field).number));
  }
  std::string text(int field) const { return one(field).bytes; }
  Message message(int field) const { return Message(one(field).bytes); }
  std::vector<Message> messages(int field) const {
    std::vector<Message> all;
    if (has(field)) {
      for (const Field& value : fields_.at(field)) all.emplace_back(value.bytes);
    }
    return all;
  }

 private:
  template <typename T, typename Raw>
  static T cast(Raw raw) {
    static_assert(sizeof(T) == sizeof(Raw));
    T value;
    std::memcpy(&value, &raw, sizeof value);
    return value;
  }
  const Field& one(int field) const {
    const auto& values = fields_.at(field);
    if (values.size() != 1) throw std::runtime_error("expected the field once");
    return values.front();
  }

  std::map<int, std::vector<Field>> fields_;
};

inline std::vector<Message> read_events(const std::filesystem::path& file,
                                        TornEnd torn_end = TornEnd::kError) {
  std::vector<Message> events;
  for (const auto& record : read_records(read_file(file), torn_end)) events.emplace_back(record);
  return events;
}

// The event files of a folder in the order of their names, as TensorBoard reads them.
inline std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::map<std::string, std::filesystem::path> sorted;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) sorted.emplace(entry.path().filename().string(), entry.path());
  }
  std::vector<std::filesystem::path> files;
  for (const auto& [name, path] : sorted) files.push_back(path);
  return files;
}

// A scalar.
struct Point {
  std::int64_t step = 0;
  std::string tag = {};
  float value = 0;

  bool operator==(const Point&) const = default;
};

// The scalars of a folder as TensorBoard would show them: the start of a session drops earlier
// scalars from its step on.
inline std::vector<Point> points(const std::filesystem::path& folder,
                                 TornEnd torn_end = TornEnd::kError) {
  std::vector<Point> found;
  for (const auto& file : event_files(folder)) {
    for (const Message& event : read_events(file, torn_end)) {
      const std::int64_t step = event.integer(2);
      if (event.has(7) && event.message(7).integer(1) == 1) {
        std::erase_if(found, [&](const Point& point) { return point.step >= step; });
      }
      if (!event.has(5)) continue;
      for (const Message& value : event.message(5).messages(1)) {
        if (value.has(2)) found.push_back({step, value.text(1), value.float32(2)});
      }
    }
  }
  return found;
}

}  // namespace lockstep::reader
