#include "lockstep/exporting/onnx_evaluator.h"

#include <gmock/gmock.h>

#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

using ::testing::HasSubstr;

OnnxModel sum_of(const std::vector<PortSize>& sizes) {
  const Port x{.name = "x", .sizes = sizes}, y{.name = "y", .sizes = sizes};
  return {.opset = 17,
          .nodes = {{.op = "Add", .name = "sum", .inputs = {"x", "w"}, .outputs = {"y"}}},
          .initializers = {{"w", torch::ones({2})}},
          .inputs = {x},
          .outputs = {y}};
}

std::string data_error(const OnnxModel& model, const Batch& inputs) {
  try {
    evaluate(model, inputs);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(OnnxEvaluator, ComputesNodeByNode) {
  const auto outputs = evaluate(sum_of({"batch", 2}), {{"x", torch::zeros({3, 2})}});
  ASSERT_EQ(outputs.size(), 1U);
  EXPECT_TRUE(torch::equal(outputs[0], torch::ones({3, 2})));
}

TEST(OnnxEvaluator, InputsMustBeThoseOfTheModel) {
  const OnnxModel model = sum_of({"batch", 2});
  EXPECT_THAT(data_error(model, {{"z", torch::zeros({3, 2})}}), HasSubstr("'x'"));
  EXPECT_THAT(data_error(model, {{"x", torch::zeros({3, 1})}}), HasSubstr("[batch, 2]"));
  EXPECT_THAT(data_error(model, {{"x", torch::zeros({3, 2}, torch::kInt64)}}), HasSubstr("Long"));
}

TEST(OnnxEvaluator, WrongGraphsAreRefused) {
  OnnxModel unknown = sum_of({2});
  unknown.nodes[0].op = "Summe";
  EXPECT_THAT(data_error(unknown, {{"x", torch::zeros({2})}}), HasSubstr("'Summe'"));
  OnnxModel missing = sum_of({2});
  missing.nodes[0].inputs[1] = "v";
  EXPECT_THAT(data_error(missing, {{"x", torch::zeros({2})}}), HasSubstr("'v'"));
  OnnxModel left_out = sum_of({2});
  left_out.nodes[0].inputs[1] = "";
  EXPECT_THAT(data_error(left_out, {{"x", torch::zeros({2})}}), HasSubstr("input 1"));
}

}  // namespace
}  // namespace lockstep::exporting
