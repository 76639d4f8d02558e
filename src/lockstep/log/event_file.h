// A TensorBoard event file: records with checksums, each an Event message.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/log/append_file.h"
#include "lockstep/log/proto.h"

namespace lockstep {

// The current time in seconds since 1970, as events store it.
double wall_time();

// `data` as a record: its length, the length's checksum, the data, the data's checksum.
std::string frame_record(std::string_view data);

// The event files in `folder`, in the order in which TensorBoard reads them: that of their names.
// None if there is no such folder.
std::vector<std::filesystem::path> event_files_in(const std::filesystem::path& folder);

// Written events are in the file however the process ends. If the process is killed during a write,
// the last record may be incomplete. TensorBoard treats such a record as not written yet. Nothing
// is appended to that file again.
class EventFile {
 public:
  // Creates `folder` and in it a new file, events.out.tfevents.<time>.<host>.<pid>. Its name sorts
  // after those of all event files there, because TensorBoard reads them in the order of their
  // names.
  explicit EventFile(const std::filesystem::path& folder);

  // Adds an event with the current time. `content` is a summary or a session log.
  void write(std::int64_t step, const ProtoMessage& content);

  // Returns when all events are on the disk.
  void sync() { file_.sync(); }

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace lockstep
