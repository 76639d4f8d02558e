#include "lockstep/launcher/node_member.h"

#include <cerrno>
#include <csignal>
#include <functional>
#include <future>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "tests/support/io_faults.h"
#include "tests/support/rank_process.h"

namespace lockstep::launcher {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

int port_that_is_free() {
  return rendezvous::local_port(rendezvous::listen_on({}));
}

NodeMemberOptions member_at(const std::vector<int>& ports, int own) {
  NodeMemberOptions options{.own_endpoint = own,
                            .token = "secret",
                            .ranks = 2,
                            .cores = 4,
                            .least = 1,
                            .most = 2,
                            .timeout = 10s,
                            .silence = 1s,
                            .last_call = 5s};
  for (const int port : ports)
    options.endpoints.push_back({.address = {.address = "127.0.0.1", .port = port}});
  return options;
}

BegunGeneration begun(NodeMember& member) {
  auto next = std::async(std::launch::async, [&] { return member.next(); });
  if (next.wait_for(kLimit) != std::future_status::ready) {
    ADD_FAILURE() << "no generation begins";
    member.leave("");
    std::abort();  // the future would wait for ever
  }
  const auto order = next.get();
  if (const auto* const over = std::get_if<RunEnd>(&order)) ADD_FAILURE() << over->text;
  return std::get<BegunGeneration>(order);
}

bool must_stop(const NodeMember& member) {
  pollfd stop{member.stop_fd(), POLLIN, 0};
  return ::poll(&stop, 1, 10'000) == 1;
}

TEST(NodeMember, TwoNodesWorkTogetherUntilTheEnd) {
  const int port = port_that_is_free();
  NodeMember first(member_at({port}, 0));
  NodeMember second(member_at({port}, 1));
  const BegunGeneration a = begun(first), b = begun(second);
  EXPECT_EQ(a.part.world_size, 4);
  EXPECT_EQ(a.part.node_rank, 0);
  EXPECT_EQ(b.part.first_rank, 2);
  EXPECT_EQ(a.part.run_id, b.part.run_id);
  EXPECT_EQ(to_string(a.master), to_string(b.master));
  EXPECT_FALSE(second.others_ended(1));
  first.ended({.generation = 1, .well = true});
  EXPECT_TRUE(eventually([&] { return second.others_ended(1); }));
  EXPECT_FALSE(first.others_ended(1)) << "the ranks of the second node still run";
  EXPECT_FALSE(second.others_ended(2));
  second.ended({.generation = 1, .well = true});
  EXPECT_EQ(std::get<RunEnd>(first.next()).code, 0);
  EXPECT_EQ(std::get<RunEnd>(second.next()).code, 0);
}

TEST(NodeMember, ANodeThatLeavesIsMissedAtOnce) {
  const int port = port_that_is_free();
  NodeMember first(member_at({port}, 0));
  {
    NodeMember second(member_at({port}, 1));
    begun(first);
    begun(second);
    second.leave("it has other work");
  }
  EXPECT_TRUE(must_stop(first));
  first.ended({.generation = 1});
  const BegunGeneration alone = begun(first);
  EXPECT_EQ(alone.part.world_size, 2);
  EXPECT_THAT(alone.part.why, HasSubstr("it has other work"));
  EXPECT_EQ(alone.part.state.shards, 4);
}

// No other node can coordinate, so the others must not look for one until their time limit.
TEST(NodeMember, TheNodeOfTheOnlyEndpointEndsTheRunWhenItIsInterrupted) {
  const int port = port_that_is_free();
  std::optional<NodeMember> first(std::in_place, member_at({port}, 0));
  NodeMemberOptions options = member_at({port}, 1);
  options.timeout = 60s;
  NodeMember second(options);
  begun(*first);
  begun(second);
  first->leave("interrupted by signal 2", 130);
  auto gone = std::async(std::launch::async, [&] { first.reset(); });
  EXPECT_TRUE(must_stop(second));
  second.ended({.generation = 1});
  auto next = std::async(std::launch::async, [&] { return second.next(); });
  ASSERT_EQ(next.wait_for(kLimit), std::future_status::ready);
  const auto over = next.get();
  ASSERT_TRUE(std::holds_alternative<RunEnd>(over));
  EXPECT_EQ(std::get<RunEnd>(over).code, 130);
  EXPECT_THAT(std::get<RunEnd>(over).text, HasSubstr("has left: interrupted by signal 2"));
}

// The coordinator's process is killed. The other node sees its end and takes over at its own
// endpoint.
TEST(NodeMember, AnotherNodeTakesOver) {
  const std::vector<int> ports = {port_that_is_free(), port_that_is_free()};
  RankProcess coordinator([&] {
    NodeMember member(member_at(ports, 0));
    member.next();
    return wait_for_ever();
  });
  NodeMember survivor(member_at(ports, 1));
  EXPECT_EQ(begun(survivor).part.node_rank, 1);
  coordinator.send(SIGKILL);
  EXPECT_TRUE(must_stop(survivor));
  survivor.ended({.generation = 1});
  const BegunGeneration alone = begun(survivor);
  EXPECT_EQ(alone.part.generation.number, 2);
  EXPECT_EQ(alone.part.node_rank, 0);
  EXPECT_EQ(alone.part.state.shards, 4);
  // A new process at the first endpoint finds the run at the second one.
  NodeMember newcomer(member_at(ports, 0));
  EXPECT_TRUE(must_stop(survivor));
  survivor.ended({.generation = 2});
  EXPECT_EQ(begun(newcomer).part.node_rank, 1);
  EXPECT_EQ(begun(survivor).part.generation.number, 3);
}

// A coordinator that is only silent may still work, so of two nodes the other one does not take
// over.
TEST(NodeMember, SilenceOfTheCoordinatorIsNotItsEnd) {
  const std::vector<int> ports = {port_that_is_free(), port_that_is_free()};
  RankProcess coordinator([&] {
    NodeMember member(member_at(ports, 0));
    member.next();
    return wait_for_ever();
  });
  NodeMemberOptions options = member_at(ports, 1);
  options.timeout = 4s;
  std::vector<std::string> lines;
  options.say = [&](const std::string& line) { lines.push_back(line); };
  NodeMember other(options);
  begun(other);
  coordinator.send(SIGSTOP);
  EXPECT_TRUE(must_stop(other));
  other.ended({.generation = 1});
  const auto next = other.next();
  ASSERT_TRUE(std::holds_alternative<RunEnd>(next));
  EXPECT_EQ(std::get<RunEnd>(next).code, 1);
  EXPECT_THAT(std::get<RunEnd>(next).text,
              HasSubstr("only a part of the 2 nodes of the last generation"));
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines[0], HasSubstr("it has sent nothing for 1."));
}

// The kernel of this host had no memory for a message, so this node has closed the connection
// itself.
TEST(NodeMember, AFailedSendIsNotTheCoordinatorsEnd) {
  const std::vector<int> ports = {port_that_is_free(), port_that_is_free()};
  RankProcess coordinator([&] {
    NodeMember member(member_at(ports, 0));
    member.next();
    return wait_for_ever();
  });
  NodeMemberOptions options = member_at(ports, 1);
  options.timeout = 4s;
  options.silence = 60s;
  NodeMember other(options);
  begun(other);
  coordinator.send(SIGSTOP);
  {
    const IoFaults faults(
        {.sockets = to_string(options.endpoints[0].address), .always = {{IoCall::kSend, ENOBUFS}}});
    EXPECT_TRUE(must_stop(other));
  }
  other.ended({.generation = 1});
  const auto next = other.next();
  ASSERT_TRUE(std::holds_alternative<RunEnd>(next)) << "both could go on";
  EXPECT_THAT(std::get<RunEnd>(next).text, HasSubstr("only a part of the 2 nodes"));
}

TEST(NodeMember, ANodeWithRunningRanksJoinsNoOtherCoordinator) {
  const std::vector<int> ports = {port_that_is_free(), port_that_is_free()};
  RankProcess coordinator([&] {
    NodeMember member(member_at(ports, 0));
    member.next();
    return wait_for_ever();
  });
  NodeMember survivor(member_at(ports, 1));
  begun(survivor);
  coordinator.send(SIGKILL);
  EXPECT_TRUE(must_stop(survivor));
  auto next = std::async(std::launch::async, [&] { return survivor.next(); });
  EXPECT_EQ(next.wait_for(500ms), std::future_status::timeout);
  survivor.ended({.generation = 1});
  EXPECT_EQ(next.wait_for(kLimit), std::future_status::ready);
}

// It waits for longer than its time limit, because the run has all its nodes. Then the coordinator
// is killed.
TEST(NodeMember, AWaitingNodeLooksForItsWholeTimeLimitAfterALoss) {
  const int port = port_that_is_free();
  RankProcess coordinator([&] {
    NodeMemberOptions options = member_at({port}, 0);
    options.most = 1;
    NodeMember member(options);
    member.next();
    return wait_for_ever();
  });
  NodeMemberOptions options = member_at({port}, 1);
  options.most = 1;
  options.timeout = 2s;
  std::promise<void> lost;
  options.say = [&](const std::string&) { lost.set_value(); };
  NodeMember spare(options);
  auto next = std::async(std::launch::async, [&] { return spare.next(); });
  EXPECT_EQ(next.wait_for(3s), std::future_status::timeout) << "it waits";
  coordinator.send(SIGKILL);
  ASSERT_EQ(lost.get_future().wait_for(kLimit), std::future_status::ready);
  EXPECT_EQ(next.wait_for(1s), std::future_status::timeout) << "it looks for another one";
  EXPECT_THAT(std::get<RunEnd>(next.get()).text, HasSubstr("found no other launcher"));
}

bool is_listening(int port) {
  try {
    rendezvous::connect_to({.port = port}, rendezvous::Clock::now() + 1s);
    return true;
  } catch (const CommError&) {
    return false;
  }
}

// With other rules for who may go on, two halves of the nodes could.
TEST(NodeMember, NodesWithOtherEndpointsOrOtherNumbersOfNodesAreRefused) {
  const int port = port_that_is_free();
  NodeMember first(member_at({port, port_that_is_free()}, 0));
  ASSERT_TRUE(eventually([&] { return is_listening(port); }));
  NodeMemberOptions one_endpoint = member_at({port}, 1);
  NodeMemberOptions more_nodes = member_at({port, port_that_is_free()}, 1);
  more_nodes.most = 3;
  for (NodeMemberOptions& options : {std::ref(one_endpoint), std::ref(more_nodes)}) {
    options.timeout = 60s;
    NodeMember other(options);
    auto next = std::async(std::launch::async, [&] { return other.next(); });
    ASSERT_EQ(next.wait_for(kLimit), std::future_status::ready);
    EXPECT_THAT(std::get<RunEnd>(next.get()).text,
                HasSubstr("The token, --rdzv-id, --nnodes and --rdzv-endpoint must be the same"));
  }
}

TEST(NodeMember, AWrongTokenIsToldAtOnce) {
  const int port = port_that_is_free();
  NodeMember first(member_at({port}, 0));
  ASSERT_TRUE(eventually([&] { return is_listening(port); }));
  NodeMemberOptions options = member_at({port}, 1);
  options.token = "another";
  options.timeout = 60s;
  NodeMember second(options);
  const auto start = rendezvous::Clock::now();
  EXPECT_THAT(std::get<RunEnd>(second.next()).text, HasSubstr("does not know this run's token"));
  EXPECT_LT(rendezvous::Clock::now() - start, 20s);
}

TEST(NodeMember, EndsIfThereIsNoCoordinator) {
  NodeMemberOptions options = member_at({port_that_is_free()}, 1);
  options.timeout = 500ms;
  NodeMember member(options);
  EXPECT_THAT(std::get<RunEnd>(member.next()).text,
              HasSubstr("found no other launcher of the run at 127.0.0.1:"));
}

}  // namespace
}  // namespace lockstep::launcher
