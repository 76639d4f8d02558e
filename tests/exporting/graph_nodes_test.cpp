#include "lockstep/exporting/graph_nodes.h"

#include <gmock/gmock.h>

#include "lockstep/network/resnet.h"
#include "tests/exporting/support.h"
#include "tests/log/event_reader.h"

namespace lockstep::exporting {
namespace {

const proto::GraphNode* find_node(const std::vector<proto::GraphNode>& nodes,
                                  const std::string& name) {
  const auto found = std::ranges::find(nodes, name, &proto::GraphNode::name);
  return found == nodes.end() ? nullptr : &*found;
}

TEST(GraphNodes, OperationsAreInTheGroupsOfTheirLayers) {
  const Model model =
      network::ResNet(network::ResNetOptions{.depth = 20, .classes = 3, .channels = 1});
  const auto nodes = graph_nodes(model, {{"features", torch::randn({2, 1, 8, 8})}});
  const auto* const conv = find_node(nodes, "layer1/0/conv1/_convolution");
  ASSERT_NE(conv, nullptr);
  EXPECT_THAT(conv->inputs, ::testing::Contains("layer1/0/conv1/weight"));
  EXPECT_EQ(conv->shapes.at(0), (std::vector<std::int64_t>{2, 16, 8, 8}));
  const auto* const output = find_node(nodes, "outputs/output");
  ASSERT_NE(output, nullptr);
  EXPECT_THAT(output->inputs, ::testing::ElementsAre(::testing::StartsWith("fc/")));
  // Every name is there once, and every edge begins at a node.
  std::set<std::string> names;
  for (const auto& node : nodes) EXPECT_TRUE(names.insert(node.name).second) << node.name;
  for (const auto& node : nodes) {
    for (const auto& input : node.inputs) EXPECT_TRUE(names.contains(input)) << input;
  }
}

TEST(GraphNodes, AnEventFileHasTheGraph) {
  const TemporaryDirectory folder;
  const Model model = torch::nn::Sequential(torch::nn::Linear(4, 2));
  write_graph(model, {{"x", torch::randn({2, 4})}}, folder / "graph");
  const auto events = reader::read_events(reader::event_files(folder / "graph").front());
  ASSERT_EQ(events.size(), 2U);  // the first one is the version of the format
  EXPECT_TRUE(events[1].has(4));
}

}  // namespace
}  // namespace lockstep::exporting
