#include "lockstep/log/event_file.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/log/event_reader.h"

namespace lockstep {
namespace {

using ::testing::MatchesRegex;

TEST(EventFile, RecordsCarryLengthAndChecksums) {
  const std::vector<std::string> records = reader::read_records(
      frame_record("hello") + frame_record("") + frame_record("world"), reader::TornEnd::kError);
  EXPECT_EQ(records, (std::vector<std::string>{"hello", "", "world"}));
}

TEST(EventFile, BeginsWithTheVersionAndNamesTimeHostAndProcess) {
  TemporaryDirectory folder;
  const double before = wall_time();
  EventFile file(folder / "tensorboard/train");
  const auto events = reader::read_events(file.path());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text(3), "brain.Event:2");
  EXPECT_GE(events[0].float64(1), before);
  EXPECT_LE(events[0].float64(1), wall_time());
  EXPECT_THAT(
      file.path().filename().string(),
      MatchesRegex("events\\.out\\.tfevents\\.[0-9]{10}\\..+\\." + std::to_string(::getpid())));
}

TEST(EventFile, EventsHaveTheirStepAndContent) {
  TemporaryDirectory folder;
  EventFile file(folder.path());
  file.write(1234567890123, ProtoMessage().bytes(5, "summary"));
  const auto events = reader::read_events(file.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].integer(2), 1234567890123);
  EXPECT_EQ(events[1].text(5), "summary");
}

TEST(EventFile, ALaterFileIsReadLater) {
  TemporaryDirectory folder;
  std::vector<std::filesystem::path> made;
  for (int i = 0; i < 3; ++i) made.push_back(EventFile(folder.path()).path());
  EXPECT_EQ(reader::event_files(folder.path()), made);
}

TEST(EventFile, AKillTearsTheLastRecordAtWorst) {
  TemporaryDirectory folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(20);
    EventFile file(folder.path());
    for (std::int64_t step = 1;; ++step) file.write(step, ProtoMessage().bytes(5, "x"));
  }
  // The writer is killed while it writes, when the file has grown a little.
  for (int tries = 0; tries < 10'000; ++tries) {
    const auto files = reader::event_files(folder.path());
    if (!files.empty() && std::filesystem::file_size(files[0]) > 50'000) break;
    ::usleep(1000);
  }
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto events =
      reader::read_events(reader::event_files(folder.path()).at(0), reader::TornEnd::kSkip);
  ASSERT_GT(events.size(), 100u);
  EXPECT_EQ(events.back().integer(2), static_cast<std::int64_t>(events.size()) - 1);
}

}  // namespace
}  // namespace lockstep
