#include "lockstep/rendezvous/announcement.h"

#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "tests/support/rank_process.h"
#include "tests/support/slowdown.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A name that no other process uses.
std::string unique(const std::string& name) {
  return name + "-" + std::to_string(::getpid());
}

TEST(Announcement, IsReadByOtherProcesses) {
  const std::string name = unique("read");
  std::vector<RankProcess> readers;
  for (int i = 0; i < 3; ++i) {
    // Some of them ask before the announcement exists.
    readers.emplace_back(
        [&] { return read_announcement(name, kLimit) == "127.0.0.1 4711 secret" ? 0 : 1; });
  }
  const Announcement announcement(name, "127.0.0.1 4711 secret");
  for (RankProcess& reader : readers) EXPECT_EQ(reader.wait(), 0);
}

TEST(Announcement, ALongTextComesWhole) {
  const std::string name = unique("long");
  const std::string text(50'000, 'x');
  const Announcement announcement(name, text);
  EXPECT_EQ(read_announcement(name, kLimit), text);
}

TEST(Announcement, WithoutOneTheReaderGivesUpAtTheTimeout) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(message_of<CommError>([&] { read_announcement(unique("missing"), 300ms); }),
              AllOf(HasSubstr("waited 0.3 s"), HasSubstr(unique("missing"))));
  EXPECT_LT(std::chrono::steady_clock::now() - start, scaled(1s));
}

TEST(Announcement, AnAnnouncerThatIsStoppedDoesNotHoldUpItsReaders) {
  const std::string name = unique("stopped");
  RankProcess announcer([&] {
    const Announcement announcement(name, "hello");
    std::this_thread::sleep_for(kLimit);
    return 0;
  });
  EXPECT_EQ(read_announcement(name, kLimit), "hello");
  announcer.send(SIGSTOP);
  const auto start = std::chrono::steady_clock::now();
  // The announcer may answer a few times before it is stopped.
  EXPECT_TRUE(eventually(
      [&] { return message_of<CommError>([&] { read_announcement(name, 300ms); }) != ""; }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, scaled(2s));
}

TEST(Announcement, ANameIsTakenOnceAndFreeAfterwards) {
  const std::string name = unique("taken");
  std::optional<Announcement> first(std::in_place, name, "first");
  EXPECT_THAT(message_of<CommError>([&] { Announcement(name, "second"); }), HasSubstr(name));
  first.reset();
  const Announcement third(name, "third");
  EXPECT_EQ(read_announcement(name, kLimit), "third");
}

TEST(Announcement, ANameThatIsTooLongIsRefused) {
  EXPECT_THAT(message_of<CommError>([&] { Announcement(std::string(200, 'n'), ""); }),
              HasSubstr("shorter"));
}

}  // namespace
}  // namespace lockstep::rendezvous
