#include "lockstep/log/graph_proto.h"

#include <gtest/gtest.h>

#include "tests/log/event_reader.h"

namespace lockstep::proto {
namespace {

TEST(GraphProto, NodesHaveInputsAndShapes) {
  const ProtoMessage event =
      graph({{.name = "inputs/x", .op = "Input", .shapes = {{-1, 3}}},
             {.name = "fc/linear", .op = "aten::linear", .inputs = {"inputs/x", "fc/weight"}}});
  const reader::Message definition = reader::Message(event.encoded()).message(4);
  const auto nodes = definition.messages(1);
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[0].text(1), "inputs/x");
  EXPECT_EQ(nodes[0].text(2), "Input");
  const reader::Message attribute = nodes[0].message(5);
  EXPECT_EQ(attribute.text(1), "_output_shapes");
  const auto sizes = attribute.message(2).message(1).message(7).messages(2);
  ASSERT_EQ(sizes.size(), 2U);
  EXPECT_EQ(sizes[0].integer(1), -1);
  EXPECT_EQ(sizes[1].integer(1), 3);
  EXPECT_TRUE(nodes[1].has(3));
  EXPECT_EQ(definition.message(4).integer(1), 22);
}

}  // namespace
}  // namespace lockstep::proto
