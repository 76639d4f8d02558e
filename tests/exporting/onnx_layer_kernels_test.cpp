// Most layers are compared with LibTorch's in the tests of their translation. Here are the parts of
// ONNX's specification that LibTorch has in another form.
#include <gmock/gmock.h>

#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

using testing::expect_close;
using testing::run_node;
using testing::run_one;
using torch::Tensor;
using Numbers = std::vector<std::int64_t>;

TEST(OnnxLayerKernels, PadsMayDifferAtTheBeginningAndTheEnd) {
  const Tensor x = torch::tensor({{{1.0F, 2.0F, 3.0F}}}), w = torch::ones({1, 1, 2});
  expect_close(run_one("Conv", {x, w}, {{"pads", Numbers{1, 0}}}),
               torch::tensor({{{1.0F, 3.0F, 5.0F}}}));
  expect_close(run_one("MaxPool", {x}, {{"kernel_shape", Numbers{2}}, {"pads", Numbers{0, 1}}}),
               torch::tensor({{{2.0F, 3.0F, 3.0F}}}));
  expect_close(run_one("AveragePool", {x}, {{"kernel_shape", Numbers{2}}, {"pads", Numbers{0, 1}}}),
               torch::tensor({{{1.5F, 2.5F, 3.0F}}}));
  expect_close(run_one("AveragePool", {x},
                       {{"kernel_shape", Numbers{2}},
                        {"pads", Numbers{0, 1}},
                        {"count_include_pad", std::int64_t{1}}}),
               torch::tensor({{{1.5F, 2.5F, 1.5F}}}));
  expect_close(
      run_one("ConvTranspose", {x, w, torch::full({1}, 0.5F)},
              {{"strides", Numbers{2}}, {"pads", Numbers{1, 0}}, {"output_padding", Numbers{1}}}),
      torch::tensor({{{1.5F, 2.5F, 2.5F, 3.5F, 3.5F, 0.5F}}}));
}

TEST(OnnxLayerKernels, ANormHasItsEpsilonUnderTheRoot) {
  const Tensor x = torch::tensor({{{-1.0F, 1.0F}}});
  const Tensor one = torch::ones({1}), zero = torch::zeros({1});
  const Tensor expected = x / std::sqrt(1.25F);
  expect_close(run_one("InstanceNormalization", {x, one, zero}, {{"epsilon", 0.25}}), expected);
  expect_close(run_one("BatchNormalization", {x, one, zero, zero, one}, {{"epsilon", 0.25}}),
               expected);
  expect_close(run_one("LayerNormalization", {x, torch::ones({2})}, {{"epsilon", 0.25}}), expected);
}

// With lengths, outputs behind the end are zero, and the last state is that of the end.
TEST(OnnxLayerKernels, SequencesOfSeveralLengths) {
  torch::manual_seed(5);
  const Tensor x = torch::randn({4, 2, 3});  // tokens, batch, features
  for (const std::int64_t gates : {4, 3}) {
    const char* const op = gates == 4 ? "LSTM" : "GRU";
    const std::size_t outputs = gates == 4 ? 3 : 2;
    OnnxAttributes attributes = {{"hidden_size", std::int64_t{2}},
                                 {"direction", std::string("bidirectional")}};
    if (gates == 3) attributes.emplace("linear_before_reset", std::int64_t{1});
    const Tensor w = torch::randn({2, gates * 2, 3}), r = torch::randn({2, gates * 2, 2});
    const Tensor b = torch::randn({2, gates * 4});
    const auto all =
        run_node(op, {x, w, r, b, torch::tensor({4, 2}, torch::kInt32)}, attributes, outputs);
    const auto first = run_node(op, {x.narrow(1, 0, 1), w, r, b}, attributes, outputs);
    const auto second =
        run_node(op, {x.narrow(1, 1, 1).narrow(0, 0, 2), w, r, b}, attributes, outputs);
    expect_close(all[0].narrow(2, 0, 1), first[0]);
    expect_close(all[0].narrow(2, 1, 1).narrow(0, 0, 2), second[0]);
    EXPECT_FALSE(all[0].narrow(2, 1, 1).narrow(0, 2, 2).any().item<bool>());
    expect_close(all[1].narrow(1, 1, 1), second[1]);
  }
  EXPECT_THROW(run_node("GRU", {x, torch::randn({1, 6, 3}), torch::randn({1, 6, 2})}, {}, 2),
               DataError);
}

}  // namespace
}  // namespace lockstep::exporting
