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
  // The largest output is 8 for five samples, so 4e-5 is half of the tolerance.
  const auto file = [](const torch::Tensor& x) { return x.size(0) == 1 ? x * 2 : x * 2 + 4e-5; };
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
