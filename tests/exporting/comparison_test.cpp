#include "lockstep/exporting/comparison.h"

#include <gmock/gmock.h>

#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Batch kPairs = {{"x", torch::tensor({{1.0F, -2.0F}, {3.0F, 4.0F}})}};

Model doubled() {
  return testing::Function([](const torch::Tensor& x) { return x * 2; });
}

Exported compare(const std::function<torch::Tensor(const torch::Tensor&)>& file,
                 double tolerance = 1e-5) {
  return compare_outputs(doubled(), kPairs,
                         [&](const Batch& inputs) { return std::vector{file(inputs["x"])}; },
                         {.file = "model.onnx", .tolerance = tolerance});
}

TEST(Comparison, SaysWhatWasCompared) {
  const Exported exported = compare([](const torch::Tensor& x) { return x + x; });
  EXPECT_EQ(exported.largest_error, 0);
  EXPECT_THAT(exported.checked_sizes, ElementsAre(1, 5));
  EXPECT_EQ(describe(exported.inputs[0]), "x Float [batch, 2]");
}

TEST(Comparison, DifferencesAreRelativeToTheLargestValue) {
  // The largest output is twice the largest input, so the difference is half of the tolerance.
  const auto file = [](const torch::Tensor& x) {
    return x.size(0) == 1 ? x * 2 : x * 2 + x.abs().max() * 1e-5;
  };
  EXPECT_NEAR(compare(file).largest_error, 5e-6, 1e-6);
  const std::string message = testing::error_of([&] { compare(file, 1e-6); });
  EXPECT_THAT(message, AllOf(HasSubstr("model.onnx is not kept"), HasSubstr("'output'"),
                             HasSubstr("batch of 5")));
}

TEST(Comparison, OtherShapesTypesAndNumbersOfOutputsAreRefused) {
  EXPECT_THAT(testing::error_of([] { compare([](const auto& x) { return x.sum(); }); }),
              HasSubstr("expected Float"));
  EXPECT_THAT(
      testing::error_of([] { compare([](const auto& x) { return (x * 2).to(torch::kFloat64); }); }),
      HasSubstr("Double"));
  EXPECT_THAT(testing::error_of([] {
                compare_outputs(doubled(), kPairs,
                                [](const Batch&) { return std::vector<torch::Tensor>(); },
                                {.file = "f"});
              }),
              HasSubstr("0 outputs"));
}

TEST(Comparison, InfinityAndNanMustBeAtTheSamePlaces) {
  const Model model = testing::Function([](const torch::Tensor& x) { return x.log(); });
  const auto run = [&](double change) {
    return compare_outputs(
        model, kPairs,
        [&](const Batch& inputs) { return std::vector{(inputs["x"] + change).log()}; },
        {.file = "f"});
  };
  EXPECT_EQ(run(0).largest_error, 0);  // log(-2) is NaN in both
  EXPECT_THAT(testing::error_of([&] { run(3); }), HasSubstr("NaN"));
}

// A trace keeps the numbers that the model computed for the example, as constants.
TEST(Comparison, AFileThatIsRightOnlyForTheExampleIsRefused) {
  const Model model =
      testing::Function([](const torch::Tensor& x) { return x / x.abs().max().item<float>(); });
  const auto baked = [](const Batch& inputs) { return std::vector{inputs["x"] / 4}; };
  const std::string message = testing::error_of([&] {
    compare_outputs(model, kPairs, baked, {.file = "model.onnx", .dynamic_batch = false});
  });
  EXPECT_THAT(message, AllOf(HasSubstr("model.onnx is not kept"), HasSubstr("batch of 2"),
                             HasSubstr("other values"), HasSubstr("torch::where")));
  const auto right = [](const Batch& inputs) {
    return std::vector{inputs["x"] / inputs["x"].abs().max()};
  };
  const Exported exported =
      compare_outputs(model, kPairs, right, {.file = "model.onnx", .dynamic_batch = false});
  EXPECT_THAT(exported.checked_sizes, ElementsAre(2));
}

TEST(Comparison, OtherValuesThatTheModelRefusesAreNotCompared) {
  const Model model = testing::Function([](const torch::Tensor& x) {
    if (x.max().item<float>() < 4) throw DataError("too small");
    return x * 2;
  });
  const auto run = [](const Batch& inputs) { return std::vector{inputs["x"] * 2}; };
  EXPECT_EQ(
      compare_outputs(model, kPairs, run, {.file = "f", .dynamic_batch = false}).largest_error, 0);
}

// Columns of indices may have different ranges, so then only the rows change places.
TEST(Comparison, OtherIntegersAreThoseThatTheModelTakes) {
  const Model model = testing::Function([](const torch::Tensor& x) {
    if (x.select(1, 0).max().item<std::int64_t>() > 1) throw DataError("out of range");
    return x * x[0][0].item<std::int64_t>();
  });
  const Batch columns = {{"x", torch::tensor({{1, 7, 8, 9}, {0, 5, 6, 4}})}};
  const auto baked = [](const Batch& inputs) { return std::vector{inputs["x"] * 1}; };
  EXPECT_THAT(testing::error_of([&] {
                compare_outputs(model, columns, baked, {.file = "f", .dynamic_batch = false});
              }),
              HasSubstr("other values"));
}

// The tolerance is relative to what the output usually is: a sigmoid may be almost 0.
TEST(Comparison, TinyOutputsOfOtherValuesNeedNoDigits) {
  const Model model = testing::Function([](const torch::Tensor& x) { return (x * 9).exp(); });
  const Batch inputs = {{"x", torch::full({2, 2}, 2.0F)}};
  const auto run = [](const Batch& given) {
    return std::vector{(given["x"] * 9).exp() + torch::full({2, 2}, 1e-6F)};
  };
  EXPECT_LT(
      compare_outputs(model, inputs, run, {.file = "f", .dynamic_batch = false}).largest_error,
      1e-9);
}

TEST(Comparison, AModelThatRefusesOneSampleIsComparedWithFour) {
  const Model model = testing::Function([](const torch::Tensor& x) {
    if (x.size(0) < 2) throw DataError("too few");
    return x;
  });
  const Exported exported = compare_outputs(
      model, kPairs, [](const Batch& inputs) { return std::vector{inputs["x"]}; }, {.file = "f"});
  EXPECT_THAT(exported.checked_sizes, ElementsAre(4, 5));
}

}  // namespace
}  // namespace lockstep::exporting
