#include "lockstep/log/event_scalars.h"

#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/log/event_file.h"
#include "lockstep/log/summary_proto.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

void write_bytes(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST(EventScalars, AsTensorBoardShowsThem) {
  const TemporaryDirectory folder;
  EXPECT_TRUE(read_scalar_steps(folder / "missing", "/epoch").empty());
  {
    EventFile file(folder.path());
    for (int epoch = 1; epoch <= 3; ++epoch) {
      file.write(epoch, proto::scalars({{"loss", 1}, {"auc", 2}}, "epoch"));
      file.write(100 * epoch, proto::scalars({{"loss", 1}}, "batch"));
    }
  }
  EventFile resumed(folder.path());
  resumed.write(3, proto::session_start());
  resumed.write(4, proto::scalars({{"loss", 1}}, "epoch"));
  write_bytes(folder / "notes.txt", "no events");
  EXPECT_EQ(read_scalar_steps(folder.path(), "/epoch"), (ScalarSteps{{"auc/epoch", 1},
                                                                     {"auc/epoch", 2},
                                                                     {"loss/epoch", 1},
                                                                     {"loss/epoch", 2},
                                                                     {"loss/epoch", 4}}));
}

TEST(EventScalars, AFileEndsAtItsFirstDamagedRecord) {
  const TemporaryDirectory folder;
  fs::path path;
  std::vector<std::size_t> ends;  // of the records
  {
    EventFile file(folder.path());
    path = file.path();
    for (int epoch = 1; epoch <= 3; ++epoch) {
      ends.push_back(fs::file_size(path));
      file.write(epoch, proto::scalars({{"loss", 1}}, "epoch"));
    }
    ends.push_back(fs::file_size(path));
  }
  const std::string whole = read_file(path);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    // The records before this byte.
    const auto before = std::ranges::upper_bound(ends, at) - ends.begin();
    const auto expected = static_cast<std::size_t>(std::max<std::ptrdiff_t>(before - 1, 0));
    write_bytes(path, whole.substr(0, at));
    EXPECT_EQ(read_scalar_steps(folder.path(), "").size(), expected) << at;
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x40);
    write_bytes(path, flipped);
    EXPECT_EQ(read_scalar_steps(folder.path(), "").size(), expected) << at;
  }
}

}  // namespace
}  // namespace lockstep
