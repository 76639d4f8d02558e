// Every call of the rendezvous to the system fails once. The ranks are threads of one process.
#include <future>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/announcement.h"
#include "lockstep/rendezvous/frame_channel.h"
#include "lockstep/rendezvous/rendezvous.h"
#include "lockstep/rendezvous/rendezvous_server.h"
#include "lockstep/rendezvous/socket.h"
#include "tests/support/io_faults.h"
#include "tests/support/rank_process.h"
#include "tests/support/slowdown.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kRanks = 2;
// The time limit that the ranks are given, and that of a whole run, which has a join, a request and
// a farewell that waits for a second.
const auto kTimeout = scaled(10s);
const auto kRunLimit = scaled(5s);

// A rank of a small run: it joins, exchanges values and leaves.
std::string exchange(int rank, int port) {
  try {
    Rendezvous rendezvous(
        {.port = port, .token = "secret", .rank = rank, .world_size = kRanks, .timeout = kTimeout});
    rendezvous.set(fmt::format("rank/{}", rank), fmt::format("value of {}", rank));
    const int other = kRanks - 1 - rank;
    const std::string value = rendezvous.get(fmt::format("rank/{}", other));
    if (value != fmt::format("value of {}", other)) return "a wrong value: " + value;
    if (rendezvous.add("done", 1) == kRanks) rendezvous.set("all done", "");
    rendezvous.get("all done");
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(RendezvousFaults, EveryRankGoesOnOrEndsInTimeWithAnErrorThatNamesTheServer) {
  // The plan names the port before the server listens there.
  const FileDescriptor reserved = reserve_port({});
  const int port = local_port(reserved);
  const std::string endpoint = to_string(Endpoint{.port = port});
  std::vector<std::string> errors;
  Clock::duration took{};
  const auto run = [&] {
    errors.clear();
    const auto start = Clock::now();
    {
      const RendezvousServer server({.port = port, .token = "secret", .world_size = kRanks});
      std::vector<std::future<std::string>> ranks;
      for (int rank = 0; rank < kRanks; ++rank) {
        ranks.push_back(std::async(std::launch::async, exchange, rank, port));
      }
      for (auto& rank : ranks) errors.push_back(rank.get());
    }
    took = Clock::now() - start;
  };
  run();  // what OpenSSL opens once stays open
  ASSERT_THAT(errors, Each(IsEmpty()));
  const auto descriptors = open_descriptors();
  const auto threads = running_threads();

  const auto runs = fail_each_call(
      {.plan = {.sockets = endpoint}, .operation = run, .check = [&](const FaultedRun& faulted) {
         const bool cannot_listen = !faulted.error.empty();
         if (cannot_listen) {
           EXPECT_THAT(faulted.error, HasSubstr(endpoint));
           EXPECT_THAT(faulted.call.call, AnyOf(IoCall::kListen, IoCall::kSocket));
         }
         EXPECT_THAT(errors, Each(AnyOf(IsEmpty(), HasSubstr(endpoint))));
         // These were only told to try again.
         if (faulted.is_harmless() || faulted.fault.error == EAGAIN ||
             faulted.call.call == IoCall::kConnect || faulted.call.call == IoCall::kAccept) {
           EXPECT_THAT(errors, Each(IsEmpty()));
         }
         EXPECT_LT(took, kRunLimit);
         EXPECT_EQ(open_descriptors(), descriptors);
         // A thread that was joined may still be listed for a moment.
         EXPECT_TRUE(eventually([&] { return running_threads() <= threads; }));
       }});
  EXPECT_GE(runs, 100);
}

// Half of a frame was sent when sending failed. The peer must not take what follows for the other
// half, and must not wait for it.
TEST(RendezvousFaults, AChannelThatCannotSendIsClosedForBothEnds) {
  const FileDescriptor listener = listen_on({});
  const Endpoint endpoint{.port = local_port(listener)};
  for (const IoFault& fault : faults_of(IoCall::kSend)) {
    SCOPED_TRACE(to_string(fault));
    const auto deadline = deadline_in(kLimit);
    FrameChannel sender(connect_to(endpoint, deadline));
    ASSERT_TRUE(wait_for(listener, POLLIN, deadline));
    FrameChannel receiver(accept_from(listener));
    {
      const IoFaults faults(
          {.sockets = to_string(endpoint), .calls = {IoCall::kSend}, .nth = 1, .fault = fault});
      sender.send(FrameKind::kSet, "first");
      sender.send(FrameKind::kSet, "second");
      while (sender.has_output()) sender.flush();
      ASSERT_TRUE(faults.struck());
    }
    std::vector<std::string> arrived;
    bool open = true;
    while (open && arrived.size() < 2 && wait_for(receiver.socket(), POLLIN, deadline)) {
      open = receiver.receive();
      while (const auto frame = receiver.next()) arrived.push_back(frame->payload);
    }
    const bool lost = fault.error == ECONNRESET || fault.error == ENOBUFS || fault.error == EPIPE;
    EXPECT_EQ(open, !lost);
    EXPECT_EQ(arrived,
              lost ? std::vector<std::string>{} : (std::vector<std::string>{"first", "second"}));
    EXPECT_EQ(sender.receive(), !lost);
    EXPECT_EQ(sender.send_error(), lost ? fault.error : 0);
  }
}

TEST(RendezvousFaults, AnAnnouncementIsReadWholeOrNotAtAll) {
  const std::string name = fmt::format("faults-{}", ::getpid());
  const std::string text = "4711 0123456789abcdef";
  std::string found;
  const auto run = [&] {
    found = "";
    const Announcement announcement(name, text);
    found = read_announcement(name, kTimeout);
  };
  run();
  const auto descriptors = open_descriptors();
  const auto threads = running_threads();
  const auto runs =
      fail_each_call({.plan = {.sockets = "@lockstep-" + name},
                      .operation = run,
                      .check = [&](const FaultedRun& faulted) {
                        if (faulted.error.empty()) {
                          EXPECT_EQ(found, text);
                        } else {
                          EXPECT_THAT(faulted.error, HasSubstr(name));
                          EXPECT_THAT(faulted.call.call, AnyOf(IoCall::kListen, IoCall::kSocket));
                        }
                        EXPECT_EQ(open_descriptors(), descriptors);
                        EXPECT_TRUE(eventually([&] { return running_threads() <= threads; }));
                      }});
  EXPECT_GE(runs, 15);
}

}  // namespace
}  // namespace lockstep::rendezvous
