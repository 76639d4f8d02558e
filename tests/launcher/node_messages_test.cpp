#include "lockstep/launcher/node_messages.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::launcher {
namespace {

const AttemptFailure kFailure{.attempt = 4,
                              .rank = 3,
                              .kind = process::FailureKind::kOutOfMemory,
                              .epoch = 2,
                              .batch = 7,
                              .shell_code = 137,
                              .blame = Blame::kLikely,
                              .how = "not enough memory"};
const RunState kState{.shards = 8, .threads = 2, .failures = {kFailure, kFailure}};
const Generation kGeneration{.number = 5, .nodes = {"a", "b"}};

void expect_same(const RunState& state) {
  EXPECT_EQ(state.shards, 8);
  EXPECT_EQ(state.threads, 2);
  ASSERT_EQ(state.failures.size(), 2u);
  EXPECT_EQ(to_string(state.failures[1]), to_string(kFailure));
  EXPECT_EQ(state.failures[1].attempt, 4);
  EXPECT_EQ(state.failures[1].kind, kFailure.kind);
  EXPECT_EQ(state.failures[1].shell_code, 137);
  EXPECT_EQ(state.failures[1].blame, Blame::kLikely);
}

TEST(NodeMessages, AreReadAsTheyWereWritten) {
  const NodeDescription node =
      decode_node(encode(NodeDescription{.id = "x",
                                         .host = "host",
                                         .ranks = 4,
                                         .cores = 16,
                                         .agreed = {.number = 6, .nodes = {"c"}},
                                         .begun = kGeneration,
                                         .state = kState,
                                         .saw_end = true}));
  EXPECT_EQ(node.id, "x");
  EXPECT_EQ(node.host, "host");
  EXPECT_EQ(node.ranks, 4);
  EXPECT_EQ(node.cores, 16);
  EXPECT_EQ(node.agreed.number, 6);
  EXPECT_EQ(node.begun.nodes, kGeneration.nodes);
  EXPECT_TRUE(node.saw_end);
  expect_same(node.state);

  const GenerationPart part = decode_part(encode(GenerationPart{.generation = kGeneration,
                                                                .state = kState,
                                                                .node_rank = 1,
                                                                .first_rank = 4,
                                                                .world_size = 8,
                                                                .port = 4711,
                                                                .run_id = "run",
                                                                .why = "because",
                                                                .cause = kFailure}));
  EXPECT_EQ(part.generation.number, 5);
  EXPECT_EQ(part.node_rank, 1);
  EXPECT_EQ(part.first_rank, 4);
  EXPECT_EQ(part.world_size, 8);
  EXPECT_EQ(part.port, 4711);
  EXPECT_EQ(part.run_id, "run");
  EXPECT_EQ(part.why, "because");
  EXPECT_EQ(to_string(part.cause.value()), to_string(kFailure));
  EXPECT_FALSE(decode_part(encode(GenerationPart{})).cause);
  expect_same(part.state);

  const GenerationOutcome outcome =
      decode_outcome(encode(GenerationOutcome{.generation = 3, .failure = kFailure}));
  EXPECT_EQ(outcome.generation, 3);
  EXPECT_FALSE(outcome.well);
  EXPECT_EQ(to_string(outcome.failure.value()), to_string(kFailure));
  EXPECT_TRUE(decode_outcome(encode(GenerationOutcome{.well = true})).well);
  EXPECT_EQ(decode_stop(encode(StopOrder{.generation = 9, .why = "w"})).why, "w");
  EXPECT_EQ(decode_end(encode(RunEnd{.code = 7, .text = "t"})).code, 7);
  EXPECT_TRUE(decode_status(encode(CoordinatorStatus{.generation = 2, .active = true})).active);
}

TEST(NodeMessages, AreRefusedIfTheyAreTooShort) {
  const std::string whole = encode(NodeDescription{.begun = kGeneration, .state = kState});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(decode_node(std::string_view(whole).substr(0, size)), CommError) << size;
  }
}

TEST(NodeMessages, TextsOfOtherHostsCannotSendControlSequences) {
  EXPECT_EQ(decode_end(encode(RunEnd{.text = "\x1b[31m"})).text.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace lockstep::launcher
