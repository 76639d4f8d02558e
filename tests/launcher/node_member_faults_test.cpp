// Every call of two launchers to the network fails once. Both are threads of one process.
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "lockstep/base/error.h"
#include "lockstep/launcher/node_member.h"
#include "tests/support/io_faults.h"
#include "tests/support/rank_process.h"
#include "tests/support/slowdown.h"

namespace lockstep::launcher {
namespace {

using namespace std::chrono_literals;

// The time that a launcher looks for another one, and the limit of a whole run.
const auto kLookTime = scaled(2s);
const auto kFaultedRunLimit = scaled(12s);

// Takes part until the run is over. The ranks of each generation end well, unless they are stopped.
RunEnd take_part(NodeMember& member) {
  while (true) {
    const auto next = member.next();
    if (const auto* const over = std::get_if<RunEnd>(&next)) return *over;
    pollfd stop{member.stop_fd(), POLLIN, 0};
    const bool stopped = ::poll(&stop, 1, 20) == 1;
    member.ended(
        {.generation = std::get<BegunGeneration>(next).part.generation.number, .well = !stopped});
  }
}

TEST(NodeMemberFaults, BothNodesGoOnOrEndInTime) {
  // The plan names the port before a coordinator listens there.
  const FileDescriptor reserved = rendezvous::reserve_port({});
  const int port = rendezvous::local_port(reserved);
  const auto options = [&](int node) {
    return NodeMemberOptions{.endpoints = {{.address = {.address = "127.0.0.1", .port = port}}},
                             .own_endpoint = node,
                             .token = "secret",
                             .least = 1,
                             .most = 2,
                             .timeout = kLookTime,
                             .silence = kLookTime / 2,
                             .last_call = 100ms};
  };
  std::vector<RunEnd> ends;
  rendezvous::Clock::duration took{};
  const auto run = [&] {
    const auto start = rendezvous::Clock::now();
    {
      NodeMember first(options(0));
      auto of_first = std::async(std::launch::async, [&] { return take_part(first); });
      NodeMember second(options(1));
      ends = {take_part(second), of_first.get()};
    }
    took = rendezvous::Clock::now() - start;
  };
  run();
  const auto descriptors = open_descriptors();
  const auto threads = running_threads();
  const auto runs = fail_each_call(
      {.plan = {.sockets = to_string(rendezvous::Endpoint{.port = port})},
       .operation = run,
       .check =
           [&](const FaultedRun& faulted) {
             EXPECT_EQ(faulted.error, "");
             EXPECT_LT(took, kFaultedRunLimit);
             for (const RunEnd& end : ends) {
               EXPECT_NE(end.text, "");
               if (faulted.is_harmless()) {
                 EXPECT_EQ(end.code, 0) << end.text;
               }
             }
             EXPECT_EQ(open_descriptors(), descriptors);
             // A thread that was joined may still be listed for a moment.
             EXPECT_TRUE(eventually([&] { return running_threads() <= threads; }));
           },
       // A repeated call and the other errors of the same kind take the same way in the code.
       .faults =
           [](IoCall call) {
             std::vector<IoFault> faults = faults_of(call);
             std::erase_if(faults, [](const IoFault& fault) {
               return fault.error == EINTR || fault.error == EAGAIN ||
                      fault.error == ECONNABORTED || fault.error == ETIMEDOUT;
             });
             return faults;
           }});
  EXPECT_GE(runs, 50);
}

}  // namespace
}  // namespace lockstep::launcher
