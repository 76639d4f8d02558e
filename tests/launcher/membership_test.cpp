#include "lockstep/launcher/membership.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::launcher {
namespace {

using namespace std::chrono_literals;
using rendezvous::FrameKind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A coordinator and what it sends. Nodes agree at once, unless `agree` is false.
struct Table {
  explicit Table(MembershipOptions options, const std::string& own = "a")
      : membership((
                       options.own = own,
                       options.send = [this](const auto& node, FrameKind kind,
                                             const auto& payload) { take(node, kind, payload); },
                       options.meeting =
                           [this] {
                             if (!no_port.empty()) throw CommError("{}", no_port);
                             return RanksMeeting{.port = ++port, .run_id = std::to_string(port)};
                           },
                       options.points = [this] { return points; }, options),
                   now) {}

  void take(const std::string& node, FrameKind kind, const std::string& payload) {
    if (kind == FrameKind::kPrepare) {
      prepared[node] = decode_part(payload);
      if (agree) agreeing.push_back(node);
    } else if (kind == FrameKind::kBegin) {
      running[node] = decode_stop(payload).generation;
    } else if (kind == FrameKind::kStop) {
      stopped[node] = decode_stop(payload).why;
    } else if (kind == FrameKind::kOver) {
      over[node] = decode_end(payload);
    } else if (kind == FrameKind::kRegroup) {
      regrouped.push_back(node);
    } else if (kind == FrameKind::kOthersEnded) {
      last[node] = decode_stop(payload).generation;
    }
  }

  // Messages of nodes arrive after the call that caused them.
  void settle() {
    while (!agreeing.empty()) {
      const std::string node = agreeing.back();
      agreeing.pop_back();
      membership.agreed(node, prepared[node].generation.number);
    }
  }
  void join(NodeDescription node) {
    node.host = node.id;
    membership.joined(node, now);
    settle();
  }
  void join(const std::string& id) { join(NodeDescription{.id = id, .ranks = 2, .cores = 8}); }
  void lose(const std::string& id) {
    running.erase(id);
    membership.lost(id, "gone", now);
    settle();
  }
  void end(const std::string& id, bool well, std::optional<AttemptFailure> failure = {}) {
    const int generation = running[id];
    running.erase(id);
    membership.ended(id, {.generation = generation, .well = well, .failure = failure}, now);
    settle();
  }
  void pass(std::chrono::milliseconds time) {
    for (const auto end = now + time; now < end; now += 100ms) {
      membership.tick(now);
      settle();
    }
  }
  std::vector<std::string> nodes_running() const {
    std::vector<std::string> nodes;
    for (const auto& [node, generation] : running) nodes.push_back(node);
    return nodes;
  }

  Membership::Time now = Membership::Time(1000s);
  bool agree = true;
  std::uint64_t points = 0;
  int port = 100;
  std::string no_port = {};  // why no port can be reserved; "" if one can
  std::vector<std::string> agreeing, regrouped;
  std::map<std::string, GenerationPart> prepared;
  std::map<std::string, int> running, last;
  std::map<std::string, std::string> stopped;
  std::map<std::string, RunEnd> over;
  Membership membership;
};

NodeDescription survivor(const std::string& id, const Generation& generation,
                         bool saw_end = false) {
  return {.id = id,
          .ranks = 2,
          .cores = 8,
          .agreed = generation,
          .begun = generation,
          .state = {.shards = 10, .threads = 4},
          .saw_end = saw_end};
}

AttemptFailure killed(int rank) {
  return {.rank = rank, .shell_code = 137, .how = "killed"};
}

TEST(Membership, BeginsWhenAllHaveCome) {
  Table table({.least = 1, .most = 2});
  table.join("a");
  EXPECT_THAT(table.nodes_running(), IsEmpty());
  table.join("b");
  EXPECT_THAT(table.nodes_running(), ElementsAre("a", "b"));
  EXPECT_EQ(table.prepared["a"].node_rank, 0);
  EXPECT_EQ(table.prepared["b"].node_rank, 1);
  EXPECT_EQ(table.prepared["b"].first_rank, 2);
  EXPECT_EQ(table.prepared["b"].world_size, 4);
  EXPECT_EQ(table.prepared["b"].state.shards, 4);
  EXPECT_EQ(table.prepared["b"].state.threads, 4);
  EXPECT_TRUE(table.membership.status().active);
}

TEST(Membership, BeginsWithEnoughNodesAfterTheLastCall) {
  Table table({.least = 2, .most = 3});
  table.join("a");
  table.pass(10s);
  EXPECT_THAT(table.nodes_running(), IsEmpty());
  table.join("b");
  table.pass(2s);
  EXPECT_THAT(table.nodes_running(), IsEmpty());
  table.pass(2s);
  EXPECT_THAT(table.nodes_running(), ElementsAre("a", "b"));
  EXPECT_EQ(table.prepared["a"].state.shards, 6) << "the bits must not depend on how many came";
}

TEST(Membership, EndsIfTooFewCome) {
  Table table({.least = 2, .most = 3, .timeout = 10s});
  table.join("a");
  table.pass(11s);
  EXPECT_EQ(table.over["a"].code, 1);
  EXPECT_THAT(table.over["a"].text, HasSubstr("1 node came in 10.0 s, expected at least 2"));
}

TEST(Membership, TellsHowManyNodesAGenerationHasThatOnlyMayHaveBegun) {
  Table table({.least = 1, .most = 3, .has_successors = true, .timeout = 10s});
  NodeDescription node{.id = "a", .ranks = 2, .cores = 8};
  node.agreed = {.number = 1, .nodes = {"z", "a", "b"}};
  table.join(node);
  table.pass(11s);
  EXPECT_THAT(table.over["a"].text, HasSubstr("only a part of the 3 nodes"));
}

TEST(Membership, AGenerationBeginsOnlyWhenAllHaveAgreed) {
  Table table({.least = 1, .most = 2});
  table.agree = false;
  table.join("a");
  table.join("b");
  table.membership.agreed("a", 1);
  EXPECT_THAT(table.nodes_running(), IsEmpty());
  table.membership.agreed("b", 7);  // another generation
  EXPECT_THAT(table.nodes_running(), IsEmpty());
  table.membership.agreed("b", 1);
  EXPECT_THAT(table.nodes_running(), ElementsAre("a", "b"));
}

TEST(Membership, ANodeThatIsLostBeforeItAgreedIsLeftOut) {
  Table table({.least = 1, .most = 2});
  table.agree = false;
  table.join("a");
  table.join("b");
  table.agree = true;
  table.lose("b");
  table.pass(4s);
  EXPECT_THAT(table.nodes_running(), ElementsAre("a"));
  EXPECT_EQ(table.running["a"], 2) << "an earlier generation's number is not used again";
}

TEST(Membership, ALostNodeIsLeftOutAndTakenInAgainWithoutUsingRestarts) {
  Table table({.least = 1, .most = 2, .max_restarts = 0});
  table.join("a");
  table.join("b");
  const int first_port = table.prepared["a"].port;
  table.lose("b");
  EXPECT_THAT(table.stopped["a"], HasSubstr("node b is lost: gone"));
  // The rank of node a fails, too, because it has lost its peer.
  table.end("a", false, killed(0));
  EXPECT_THAT(table.nodes_running(), ElementsAre("a"));
  EXPECT_EQ(table.prepared["a"].generation.number, 2);
  EXPECT_EQ(table.prepared["a"].world_size, 2);
  EXPECT_EQ(table.prepared["a"].state.shards, 4) << "shards stay";
  EXPECT_NE(table.prepared["a"].port, first_port);
  table.join("c");  // the node comes again, as another process
  EXPECT_THAT(table.stopped["a"], HasSubstr("node c came"));
  table.end("a", false);
  EXPECT_THAT(table.nodes_running(), ElementsAre("a", "c"));
  EXPECT_EQ(table.prepared["c"].generation.number, 3);
  table.end("a", true);
  EXPECT_THAT(table.over, IsEmpty());
  table.end("c", true);
  EXPECT_EQ(table.over["a"].code, 0);
  EXPECT_EQ(table.over["c"].code, 0);
}

// Its launcher lost the connection for a moment. Its ranks of the first generation are gone.
TEST(Membership, ANodeThatIsBackBeforeTheOthersHaveStoppedIsNotWaitedFor) {
  Table table({.least = 1, .most = 2});
  table.join("a");
  table.join("b");
  table.lose("b");
  table.join("b");
  table.end("a", false);
  EXPECT_THAT(table.nodes_running(), ElementsAre("a", "b"));
  EXPECT_EQ(table.running["b"], 2);
}

TEST(Membership, ANodeThatComesWaitsForTheNextPoint) {
  Table table({.least = 1, .most = 2});
  table.points = 3;
  table.join("a");
  table.pass(4s);
  table.join("b");
  table.pass(2s);
  EXPECT_THAT(table.stopped, IsEmpty());
  table.points = 4;
  table.pass(200ms);
  EXPECT_EQ(table.stopped.size(), 1u);
  // Not for ever.
  Table slow({.least = 1, .most = 2});
  slow.points = 3;
  slow.join("a");
  slow.pass(4s);
  slow.join("b");
  slow.pass(6s);
  EXPECT_EQ(slow.stopped.size(), 1u);
}

TEST(Membership, MoreNodesThanAllowedWait) {
  Table table({.least = 1, .most = 2});
  for (const char* node : {"a", "b", "c"}) table.join(node);
  table.pass(10s);
  EXPECT_THAT(table.nodes_running(), ElementsAre("a", "b"));
  EXPECT_THAT(table.stopped, IsEmpty());
  table.lose("b");
  table.end("a", false);
  EXPECT_THAT(table.nodes_running(), ElementsAre("a", "c"));
  table.end("a", true);
  table.end("c", true);
}

TEST(Membership, ANodeWhoseRanksWouldHaveNoShardWaits) {
  Table table({.least = 1, .most = 2});
  table.join("a");
  table.pass(4s);
  table.join(NodeDescription{.id = "b", .ranks = 3, .cores = 8});  // 2 + 3 ranks, but 4 shards
  table.pass(10s);
  EXPECT_THAT(table.nodes_running(), ElementsAre("a"));
  EXPECT_THAT(table.stopped, IsEmpty());
}

TEST(Membership, FailuresUseRestarts) {
  Table table({.least = 1, .most = 2, .max_restarts = 1});
  table.join("a");
  table.join("b");
  table.end("b", false, killed(2));
  EXPECT_THAT(table.stopped["a"], HasSubstr("rank 2: killed"));
  table.end("a", false, AttemptFailure{.rank = 0, .blame = Blame::kLikely, .how = "exit code 1"});
  EXPECT_THAT(table.nodes_running(), ElementsAre("a", "b"));
  EXPECT_THAT(table.prepared["a"].why, HasSubstr("restart 1 of 1: rank 2: killed"));
  table.end("a", false, AttemptFailure{.rank = 1, .shell_code = 5, .how = "exit code 5"});
  table.end("b", false);
  EXPECT_EQ(table.over["b"].code, 5);
  EXPECT_THAT(table.over["b"].text, HasSubstr("no restart is left"));
  EXPECT_THAT(table.over["b"].text, HasSubstr("failure 1: rank 2: killed"));
}

TEST(Membership, ARestartWaitsForItsTime) {
  Table table({.least = 1, .most = 1, .max_restarts = 5});
  table.join("a");
  table.end("a", false, killed(0));
  EXPECT_THAT(table.nodes_running(), ElementsAre("a"));
  table.end("a", false, killed(0));
  EXPECT_THAT(table.nodes_running(), IsEmpty());
  table.pass(300ms);
  EXPECT_THAT(table.nodes_running(), ElementsAre("a"));
}

TEST(Membership, AnOutcomeOfAnEarlierGenerationIsNotBelieved) {
  Table table({.least = 1, .most = 2});
  table.join("a");
  table.join("b");
  table.lose("b");
  table.end("a", false);
  ASSERT_THAT(table.nodes_running(), ElementsAre("a"));
  table.membership.ended("a", {.generation = 1, .well = true}, table.now);
  EXPECT_THAT(table.over, IsEmpty());
}

TEST(Membership, ANodeThatIsLostAfterItsRanksEndedWellChangesNothing) {
  Table table({.least = 1, .most = 2});
  table.join("a");
  table.join("b");
  table.end("b", true);
  table.lose("b");
  EXPECT_THAT(table.stopped, IsEmpty());
  table.end("a", true);
  EXPECT_EQ(table.over["a"].code, 0);
}

TEST(Membership, TheLastNodeThatRunsIsToldSo) {
  Table table({.least = 1, .most = 3});
  for (const char* const id : {"a", "b", "c"}) table.join(id);
  table.end("a", true);
  EXPECT_THAT(table.last, IsEmpty());
  table.end("c", true);
  EXPECT_THAT(table.last, ElementsAre(std::pair("b", 1)));
  // After a failure all nodes are stopped anyway.
  Table failed({.least = 1, .most = 2, .max_restarts = 1});
  failed.join("a");
  failed.join("b");
  failed.end("a", false, killed(0));
  EXPECT_THAT(failed.last, IsEmpty());
}

// Every node tells its ranks the same cause, and not what only followed from it.
TEST(Membership, TheNextGenerationKnowsTheCause) {
  Table table({.least = 1, .most = 2, .max_restarts = 1});
  table.join("a");
  table.join("b");
  EXPECT_FALSE(table.prepared["a"].cause);
  table.end("a", false, AttemptFailure{.rank = 0, .blame = Blame::kConsequence, .how = "code 3"});
  table.end("b", false, killed(2));
  ASSERT_TRUE(table.prepared["a"].cause);
  EXPECT_EQ(to_string(*table.prepared["a"].cause), "rank 2: killed");
  table.lose("b");
  table.end("a", false, killed(0));
  ASSERT_TRUE(table.prepared["a"].cause);
  EXPECT_EQ(table.prepared["a"].cause->rank, -1);
  EXPECT_EQ(table.prepared["a"].cause->attempt, 1);
  EXPECT_EQ(table.prepared["a"].cause->how, "node b is lost: gone");
  table.join("b");
  table.end("a", false);
  ASSERT_THAT(table.nodes_running(), ElementsAre("a", "b"));
  EXPECT_FALSE(table.prepared["a"].cause) << "a node that comes is no failure";
}

// Its launcher is alive, but cannot end a rank.
TEST(Membership, ANodeThatDoesNotStopIsNotWaitedForForEver) {
  Table table({.least = 1, .most = 2, .max_restarts = 1, .timeout = 10s});
  table.join("a");
  table.join("b");
  table.end("a", false, killed(0));
  table.pass(9s);
  EXPECT_THAT(table.regrouped, IsEmpty());
  table.pass(2s);
  EXPECT_THAT(table.regrouped, ElementsAre("b"));
  table.lose("b");  // it has closed the connection
  EXPECT_THAT(table.nodes_running(), ElementsAre("a"));
}

TEST(Membership, AGenerationBeginsLaterIfNoPortCanBeReservedNow) {
  Table table({.least = 1, .most = 2, .timeout = 10s});
  table.no_port = "too many open files";
  table.join("a");
  table.join("b");
  table.pass(5s);
  EXPECT_THAT(table.nodes_running(), IsEmpty());
  EXPECT_FALSE(table.membership.status().active);
  table.no_port = "";
  table.pass(200ms);
  EXPECT_THAT(table.nodes_running(), ElementsAre("a", "b"));
  EXPECT_EQ(table.running["a"], 1);
  table.no_port = "the address is gone";
  table.lose("b");
  table.end("a", false);
  table.pass(11s);
  EXPECT_EQ(table.over["a"].code, 1);
  EXPECT_THAT(table.over["a"].text, HasSubstr("cannot reserve a port"));
  EXPECT_THAT(table.over["a"].text, HasSubstr("the address is gone"));
}

// --- Who may go on after a cut or the loss of the coordinator.

TEST(Membership, WithOneEndpointTheCoordinatorGoesOnAlone) {
  Table table({.least = 1, .most = 3});
  for (const char* node : {"a", "b", "c"}) table.join(node);
  table.lose("b");
  table.lose("c");
  table.end("a", false);
  EXPECT_THAT(table.nodes_running(), ElementsAre("a"));
}

// Its process is another one than that of the last generation, "z".
TEST(Membership, WithOneEndpointACoordinatorThatWasStartedAgainGoesOn) {
  const Generation last{.number = 4, .nodes = {"z", "b"}};
  Table table({.least = 1, .most = 2});
  table.join("a");
  table.join(survivor("b", last));
  EXPECT_THAT(table.nodes_running(), ElementsAre("a", "b"));
  EXPECT_EQ(table.prepared["a"].generation.number, 5);
  EXPECT_EQ(table.prepared["a"].cause->how, "the coordinator of generation 4 is lost");

  Table alone({.least = 1, .most = 2});
  alone.join("a");
  alone.pass(4s);
  EXPECT_THAT(alone.nodes_running(), ElementsAre("a"));
  alone.join(survivor("b", last));
  alone.end("a", false);
  EXPECT_THAT(alone.nodes_running(), ElementsAre("a", "b")) << "it does not end a healthy run";
}

TEST(Membership, WithSeveralEndpointsTheCoordinatorNeedsHalf) {
  Table three({.least = 1, .most = 3, .has_successors = true, .timeout = 10s});
  for (const char* node : {"a", "b", "c"}) three.join(node);
  three.lose("b");
  three.lose("c");
  three.end("a", false);
  three.pass(5s);
  EXPECT_THAT(three.nodes_running(), IsEmpty()) << "b and c may go on";
  EXPECT_THAT(three.regrouped, testing::Contains("a")) << "it should look for them";
  three.pass(10s);
  EXPECT_EQ(three.over["a"].code, 1);
  EXPECT_THAT(three.over["a"].text, HasSubstr("only a part of the 3 nodes"));

  Table two({.least = 1, .most = 2, .has_successors = true});
  two.join("a");
  two.join("b");
  two.lose("b");
  two.end("a", false);
  EXPECT_THAT(two.nodes_running(), ElementsAre("a")) << "b alone may not go on";
}

TEST(Membership, ASuccessorNeedsMoreThanHalf) {
  const Generation last{.number = 4, .nodes = {"z", "a", "b"}};
  Table table({.least = 1, .most = 3, .has_successors = true, .may_found = false});
  table.join(survivor("a", last, true));
  table.pass(10s);
  EXPECT_THAT(table.nodes_running(), IsEmpty());
  table.join("new");  // was not part of the last generation
  table.pass(10s);
  EXPECT_THAT(table.nodes_running(), IsEmpty());
  table.join(survivor("b", last));
  EXPECT_THAT(table.nodes_running(), ElementsAre("a", "b", "new"));
  EXPECT_EQ(table.prepared["a"].generation.number, 5);
  EXPECT_EQ(table.prepared["a"].state.shards, 10) << "as in the last generation";
  EXPECT_THAT(table.prepared["a"].why, HasSubstr("the coordinator of generation 4 is lost"));
}

TEST(Membership, OfTwoNodesTheOtherOneGoesOnOnlyIfItSawTheCoordinatorEnd) {
  const Generation last{.number = 4, .nodes = {"z", "a"}};
  Table silent({.least = 1, .most = 2, .has_successors = true, .may_found = false});
  silent.join(survivor("a", last, false));
  silent.pass(20s);
  EXPECT_THAT(silent.nodes_running(), IsEmpty());
  Table seen({.least = 1, .most = 2, .has_successors = true, .may_found = false});
  seen.join(survivor("a", last, true));
  EXPECT_THAT(seen.nodes_running(), ElementsAre("a"));
}

TEST(Membership, ASuccessorWaitsAMomentForTheOtherSurvivors) {
  const Generation last{.number = 1, .nodes = {"z", "a", "b", "c", "d"}};
  Table table({.least = 1, .most = 5, .has_successors = true, .may_found = false});
  for (const char* node : {"a", "b", "c"}) table.join(survivor(node, last, true));
  EXPECT_THAT(table.nodes_running(), IsEmpty());
  table.pass(3s);
  EXPECT_THAT(table.nodes_running(), ElementsAre("a", "b", "c"));
}

// The old coordinator may be cut off, and its ranks end only after their grace period.
TEST(Membership, ASuccessorThatSawNoEndWaitsForTheRanksOfTheOtherSide) {
  const Generation last{.number = 4, .nodes = {"z", "a", "b"}};
  const MembershipOptions options{
      .least = 1, .most = 3, .has_successors = true, .may_found = false, .grace = 5s};
  Table silent(options);
  silent.join(survivor("a", last));
  silent.join(survivor("b", last));
  silent.pass(5500ms);
  EXPECT_THAT(silent.nodes_running(), IsEmpty());
  silent.pass(1s);
  EXPECT_THAT(silent.nodes_running(), ElementsAre("a", "b"));

  Table seen(options);
  seen.join(survivor("a", last, true));
  seen.join(survivor("b", last));
  EXPECT_THAT(seen.nodes_running(), ElementsAre("a", "b")) << "its ranks ended with it";

  MembershipOptions hasty = options;
  hasty.timeout = 1s;
  Table short_limit(hasty);
  short_limit.join(survivor("a", last));
  short_limit.join(survivor("b", last));
  short_limit.pass(7s);
  EXPECT_THAT(short_limit.nodes_running(), ElementsAre("a", "b"));
}

// It comes from an earlier start of the run, of which this run knows nothing.
TEST(Membership, ALateNodeOfAnotherStartDoesNotEndAHealthyRun) {
  Table table({.least = 1, .most = 3, .has_successors = true, .timeout = 10s});
  table.join("a");
  table.join("b");
  table.pass(4s);
  ASSERT_THAT(table.nodes_running(), ElementsAre("a", "b"));
  table.join(survivor("c", {.number = 9, .nodes = {"x", "y", "c"}}));
  EXPECT_THAT(table.over["c"].text, HasSubstr("another start of the run"));
  EXPECT_EQ(table.over["c"].code, 1);
  table.pass(20s);
  EXPECT_THAT(table.stopped, IsEmpty());
  table.join("c");  // started again
  EXPECT_THAT(table.stopped["a"], HasSubstr("node c came"));
  table.end("a", false);
  table.end("b", false);
  EXPECT_THAT(table.nodes_running(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(table.running["a"], 2);
}

TEST(Membership, ANodeThatComesAfterTheEndIsToldOfIt) {
  Table table({.least = 1, .most = 2});
  table.join("a");
  table.pass(4s);
  ASSERT_THAT(table.nodes_running(), ElementsAre("a"));
  table.end("a", true);
  ASSERT_TRUE(table.membership.is_over());
  table.join("b");
  EXPECT_EQ(table.over["b"].code, 0);
  EXPECT_EQ(table.over["b"].text, table.over["a"].text);
}

// Node a has agreed to generation 5 of {z, a, b}, which may have begun, and then only z and b know
// of it.
TEST(Membership, AGenerationThatMayHaveBegunCounts) {
  const Generation begun{.number = 4, .nodes = {"z", "a", "b", "c", "d"}};
  const Generation agreed{.number = 5, .nodes = {"z", "a", "b"}};
  Table table({.least = 1, .most = 5, .has_successors = true, .may_found = false});
  NodeDescription node = survivor("a", begun, true);
  node.agreed = agreed;
  table.join(node);
  table.join(survivor("c", begun, true));
  table.join(survivor("d", begun, true));
  table.pass(20s);
  EXPECT_THAT(table.nodes_running(), IsEmpty()) << "three of five, but one of three";
  table.join(survivor("b", begun, true));
  EXPECT_THAT(table.nodes_running(), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(table.prepared["a"].generation.number, 6);
}

// A launcher that was started again knows nothing of the run, which may go on elsewhere.
TEST(Membership, WithSeveralEndpointsTheFirstGenerationNeedsMoreThanHalfOfAllNodes) {
  Table table({.least = 1, .most = 2, .has_successors = true, .timeout = 10s});
  table.join("a");
  table.pass(9s);
  EXPECT_THAT(table.nodes_running(), IsEmpty());
  EXPECT_THAT(table.regrouped, testing::Contains("a")) << "the run may go on at another endpoint";
  table.pass(2s);
  EXPECT_THAT(table.over["a"].text, HasSubstr("more than half of 2"));
  Table later({.least = 1, .most = 2, .has_successors = true, .may_found = false});
  later.join("a");
  later.join("b");
  later.pass(10s);
  EXPECT_THAT(later.nodes_running(), IsEmpty()) << "not the first endpoint";
}

}  // namespace
}  // namespace lockstep::launcher
