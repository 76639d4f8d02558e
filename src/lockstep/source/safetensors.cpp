#include "lockstep/source/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLongestSafetensorsHeader = 100'000'000;  // as the format says

struct SafetensorsNumber {
  std::string_view name;
  StoredNumber number;
};

// In the format's order.
constexpr SafetensorsNumber kSafetensorsNumbers[] = {
    {"BOOL", {torch::kBool, 1}},        {"U8", {torch::kUInt8, 1}},
    {"I8", {torch::kInt8, 1}},          {"I16", {torch::kInt16, 2}},
    {"U16", {torch::kInt32, 2, true}},  {"F16", {torch::kFloat16, 2}},
    {"BF16", {torch::kBFloat16, 2}},    {"I32", {torch::kInt32, 4}},
    {"U32", {torch::kInt64, 4, true}},  {"F32", {torch::kFloat32, 4}},
    {"C64", {torch::kComplexFloat, 8}}, {"F64", {torch::kFloat64, 8}},
    {"I64", {torch::kInt64, 8}},        {"U64", {torch::kInt64, 8, true}},
};

std::optional<StoredNumber> safetensors_number(std::string_view type) {
  for (const auto& [name, number] : kSafetensorsNumbers) {
    if (name == type) return number;
  }
  return std::nullopt;
}

}  // namespace

std::optional<SafetensorsType> safetensors_type(torch::ScalarType type) {
  for (std::size_t i = 0; i < std::size(kSafetensorsNumbers); ++i) {
    const auto& [name, number] = kSafetensorsNumbers[i];
    if (number.type == type && !number.is_unsigned) return SafetensorsType{name, i};
  }
  return std::nullopt;
}

// Turns the JSON text of a header into entries.
class SafetensorsFile::Header {
 public:
  static std::vector<Entry> read(std::string_view text, std::uint64_t data_bytes) {
    const json document = parse(text);
    if (!document.is_object()) throw DataError("its header is no JSON object");
    std::vector<Entry> entries;
    for (const auto& [name, value] : document.items()) {
      if (name == "__metadata__") continue;
      Entry entry = reading<DataError>({.path = fmt::format("tensor '{}'", excerpt(name))},
                                       [&] { return entry_of(value, data_bytes); });
      entry.name = name;
      entries.push_back(std::move(entry));
    }
    check_places(entries);
    return entries;
  }

 private:
  // Refuses deep nesting and names that come twice, which the parser would accept.
  static json parse(std::string_view text) {
    constexpr int kDeepest = 4;
    std::set<std::string> names;
    const auto check = [&](int depth, json::parse_event_t event, const json& parsed) {
      if (depth > kDeepest) throw DataError("its header is nested too deeply");
      if (event == json::parse_event_t::key && depth == 1 &&
          !names.insert(parsed.get<std::string>()).second) {
        throw DataError("the name '{}' comes twice in its header",
                        excerpt(parsed.get<std::string>()));
      }
      return true;
    };
    try {
      return json::parse(text.begin(), text.end(), check);
    } catch (const json::exception& error) {
      constexpr std::size_t kShown = 200;  // the message has the text that was read last
      throw DataError("its header is not JSON: {}", excerpt(error.what(), kShown));
    }
  }

  static const json& field(const json& value, const char* name) {
    if (!value.is_object() || !value.contains(name)) throw DataError("has no '{}'", name);
    return value[name];
  }

  static std::uint64_t size(const json& value) {
    if (!value.is_number_unsigned())
      throw DataError("expected sizes >= 0, got {}", excerpt(value.dump()));
    return value.get<std::uint64_t>();
  }

  static Entry entry_of(const json& value, std::uint64_t data_bytes) {
    Entry entry;
    const json& type = field(value, "dtype");
    if (!type.is_string()) throw DataError("dtype: expected text, got {}", excerpt(type.dump()));
    entry.type = type.get<std::string>();
    const json& shape = field(value, "shape");
    const json& offsets = field(value, "data_offsets");
    if (!shape.is_array()) throw DataError("shape: expected a list, got {}", excerpt(shape.dump()));
    if (!offsets.is_array() || offsets.size() != 2) {
      throw DataError("data_offsets: expected two numbers, got {}", excerpt(offsets.dump()));
    }
    for (const json& side : shape) entry.shape.push_back(static_cast<std::int64_t>(size(side)));
    entry.begin = size(offsets[0]);
    entry.end = size(offsets[1]);
    if (entry.begin > entry.end || entry.end > data_bytes) {
      throw DataError("has the bytes {} to {}, but {} follow the header", entry.begin, entry.end,
                      data_bytes);
    }
    // Tensors of unknown types are refused when they are read: the others can still be used.
    const auto number = safetensors_number(entry.type);
    if (!number) return entry;
    const auto bytes = bytes_of(entry.shape, *number);
    if (bytes != entry.end - entry.begin) {
      throw DataError("a shape of [{}] {} does not fit its {} bytes", fmt::join(entry.shape, ", "),
                      excerpt(entry.type), entry.end - entry.begin);
    }
    return entry;
  }

  static void check_places(std::vector<Entry>& entries) {
    std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    for (std::size_t i = 1; i < entries.size(); ++i) {
      if (entries[i].begin >= entries[i - 1].end) continue;
      throw DataError("the tensors '{}' and '{}' share bytes of the file",
                      excerpt(entries[i - 1].name), excerpt(entries[i].name));
    }
  }
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(std::make_shared<const MappedFile>(path)) {
  reading<DataError>({.path = path}, [&] {
    std::uint64_t length = 0;
    std::memcpy(&length, file_->part(0, kLengthBytes, "the length of the header").data(),
                kLengthBytes);
    if (length > kLongestSafetensorsHeader) {
      throw DataError("its header is {} bytes long, expected at most {}", length,
                      kLongestSafetensorsHeader);
    }
    const auto text = file_->part(kLengthBytes, length, "the header");
    data_ = kLengthBytes + length;
    entries_ = Header::read({text.data(), text.size()}, file_->bytes().size() - data_);
    for (std::size_t i = 0; i < entries_.size(); ++i) places_.emplace(entries_[i].name, i);
  });
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

torch::Tensor SafetensorsFile::read(const std::string& name, Alignment alignment) const {
  const auto found = places_.find(name);
  if (found == places_.end()) {
    throw DataError("{}: there is no tensor '{}'; {}", file_->path().string(), name,
                    suggest(name, names()));
  }
  const Entry& entry = entries_[found->second];
  const std::filesystem::path where =
      fmt::format("{}: tensor '{}'", file_->path().string(), printable(name));
  return reading<DataError>({.path = where}, [&] {
    const auto number = safetensors_number(entry.type);
    if (!number) {
      throw DataError(
          "its type is '{}': expected BOOL, U8 to U64, I8 to I64, BF16, F16, F32, F64 or C64",
          excerpt(entry.type));
    }
    return tensor_of({.number = *number,
                      .shape = entry.shape,
                      .bytes = file_->part(data_ + entry.begin, entry.end - entry.begin, "it"),
                      .owner = file_},
                     alignment);
  });
}

}  // namespace lockstep::data
