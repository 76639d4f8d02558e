// A TensorBoard event file: records with checksums, each an Event message.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "lockstep/log/append_file.h"
#include "lockstep/log/proto.h"

namespace lockstep {

// Now, in seconds since 1970, as events carry it.
double wall_time();

// `data` as a record: its length, the length's checksum, the data, the data's checksum.
std::string frame_record(std::string_view data);

// What was written is in the file whenever the process ends. Killed in the middle of a write, it
// may leave a torn last record, which TensorBoard takes for one that is not there yet; nobody
// appends to that file again.
class EventFile {
 public:
  // Creates `folder` and in it a new file, events.out.tfevents.<time>.<host>.<pid>, whose name
  // comes after those of all event files there, for TensorBoard reads them in the order of their
  // names.
  explicit EventFile(const std::filesystem::path& folder);

  // Adds an event of now; `content` holds what it says: a summary or a session log.
  void write(std::int64_t step, const ProtoMessage& content);

  // Returns when all events are on the disk.
  void sync() { file_.sync(); }

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace lockstep
