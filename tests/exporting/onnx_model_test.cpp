#include "lockstep/exporting/onnx_model.h"

#include <gmock/gmock.h>

#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

using ::testing::HasSubstr;

OnnxModel small_model() {
  return {
      .opset = 17,
      .nodes = {{.op = "Add",
                 .name = "sum",
                 .inputs = {"x", "w"},
                 .outputs = {"y"},
                 .attributes = {{"i", std::int64_t{-3}},
                                {"f", 0.5},
                                {"s", std::string("same")},
                                {"is", std::vector<std::int64_t>{1, -1}},
                                {"fs", std::vector<double>{0.25}},
                                {"t", torch::ones({2})}}}},
      .initializers = {{"w", torch::arange(6).reshape({2, 3})}, {"s", torch::scalar_tensor(true)}},
      .inputs = {{.name = "x", .type = torch::kInt64, .sizes = {"batch", 3}}},
      .outputs = {{.name = "y", .type = torch::kInt64, .sizes = {"y_dim_0", 3}}}};
}

TEST(OnnxModel, ReadsWhatItWrites) {
  const OnnxModel read = decode(encode(small_model()));
  EXPECT_EQ(read.opset, 17);
  ASSERT_EQ(read.nodes.size(), 1U);
  const OnnxNode& node = read.nodes[0];
  EXPECT_EQ(node.inputs, (std::vector<std::string>{"x", "w"}));
  EXPECT_EQ(std::get<std::int64_t>(node.attributes.at("i")), -3);
  EXPECT_EQ(std::get<double>(node.attributes.at("f")), 0.5);
  EXPECT_EQ(std::get<std::string>(node.attributes.at("s")), "same");
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(node.attributes.at("is")),
            (std::vector<std::int64_t>{1, -1}));
  EXPECT_EQ(std::get<std::vector<double>>(node.attributes.at("fs")), std::vector<double>{0.25});
  EXPECT_TRUE(torch::equal(std::get<torch::Tensor>(node.attributes.at("t")), torch::ones({2})));
  EXPECT_TRUE(torch::equal(read.initializers[0].second, torch::arange(6).reshape({2, 3})));
  EXPECT_EQ(read.initializers[1].second.dim(), 0);
  EXPECT_EQ(describe(read.inputs[0]), "x Long [batch, 3]");
  EXPECT_EQ(describe(read.outputs[0]), "y Long [y_dim_0, 3]");
}

TEST(OnnxModel, TheBytesAreThoseOfTheFormat) {
  const std::string bytes =
      encode({.opset = 13, .nodes = {}, .initializers = {}, .inputs = {}, .outputs = {}});
  EXPECT_EQ(bytes[0], 8);                             // field 1, ir_version
  EXPECT_EQ(bytes[1], 7);                             // that of operator set 13
  EXPECT_THAT(bytes, HasSubstr("\x12\x08lockstep"));  // field 2, producer_name
}

TEST(OnnxModel, DamagedFilesAreRefused) {
  const std::string bytes = encode(small_model());
  EXPECT_THROW(decode(bytes.substr(0, bytes.size() - 1)), DataError);
  EXPECT_THROW(decode(""), DataError);
  EXPECT_THROW(decode("not a model"), DataError);
}

TEST(OnnxModel, TypesThatOnnxDoesNotHave) {
  EXPECT_EQ(onnx_type(torch::kFloat32), 1);
  EXPECT_THAT(testing::error_of([] { onnx_type(torch::kComplexFloat); }),
              HasSubstr("ComplexFloat"));
}

}  // namespace
}  // namespace lockstep::exporting
