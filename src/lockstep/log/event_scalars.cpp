#include "lockstep/log/event_scalars.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/log/crc32c.h"
#include "lockstep/log/event_file.h"
#include "lockstep/log/proto.h"
#include "lockstep/log/summary_proto.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

// The data of the record at the beginning of `rest`, which is removed from it. Nothing if the
// record is not complete or is damaged.
std::optional<std::string_view> take_record(std::string_view& rest) {
  constexpr std::size_t kHead = 12, kTail = 4;  // length and its checksum; checksum of the data
  if (rest.size() < kHead + kTail) return std::nullopt;
  const std::uint64_t length = read_little_endian(rest.substr(0, 8));
  if (read_little_endian(rest.substr(8, 4)) != masked_crc32c(rest.substr(0, 8))) return {};
  if (length > rest.size() - kHead - kTail) return std::nullopt;
  const std::string_view data = rest.substr(kHead, length);
  if (read_little_endian(rest.substr(kHead + length, kTail)) != masked_crc32c(data)) return {};
  rest.remove_prefix(kHead + length + kTail);
  return data;
}

struct Wanted {
  std::string_view suffix = {};
  std::int64_t first_step = 0;
};

void add_scalars(std::string_view file, const Wanted& wanted, ScalarSteps& scalars) {
  while (const auto data = take_record(file)) {
    const proto::EventContent event = proto::read_event(*data);
    if (event.is_session_start) {
      std::erase_if(scalars, [&](const auto& scalar) { return scalar.second >= event.step; });
    }
    if (event.step < wanted.first_step) continue;
    for (const std::string_view tag : event.scalars) {
      if (tag.ends_with(wanted.suffix)) scalars.emplace(tag, event.step);
    }
  }
}

}  // namespace

ScalarSteps read_scalar_steps(const fs::path& folder, std::string_view suffix,
                              std::int64_t first_step) {
  const Wanted wanted{.suffix = suffix, .first_step = first_step};
  ScalarSteps scalars;
  // TensorBoard reads them in the order of their names.
  for (const fs::path& path : event_files_in(folder)) add_scalars(read_file(path), wanted, scalars);
  return scalars;
}

}  // namespace lockstep
