#include "lockstep/source/download_progress.h"

#include <gmock/gmock.h>

namespace lockstep::data {
namespace {

TEST(DownloadProgress, LineHasPercentSizeAndRate) {
  EXPECT_EQ(progress_line("file", 3 << 20, 12 << 20, 1.5), "file: 25 %, 3.0 MiB, 2.0 MiB/s");
  EXPECT_EQ(progress_line("file", 1024, 0, 1), "file: 1.0 KiB, 1.0 KiB/s");
}

TEST(DownloadProgress, WithoutATerminalIsTwoLines) {
  testing::internal::CaptureStderr();
  {
    DownloadProgress progress("file", "http://mirror/file");
    progress.update(512, 1024);
    progress.done(1024);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex("file: downloading from http://mirror/file\n"
                                    "file: 100 %, 1.0 KiB, [^\n]*/s\n"));
}

}  // namespace
}  // namespace lockstep::data
