#include "lockstep/train/operator_profile.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

OperatorProfile::Row row_of(const OperatorProfile& profile, const std::string& part) {
  for (const auto& row : profile.rows()) {
    if (row.name.find(part) != std::string::npos) return row;
  }
  return {};
}

TEST(OperatorProfile, CountsCallsAndTheirOwnTime) {
  const auto x = torch::randn({256, 256}).requires_grad_();
  const auto start = std::chrono::steady_clock::now();
  const OperatorProfile profile;
  for (int i = 0; i < 3; ++i) torch::matmul(x, x);
  x.mm(x).sum().backward();
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(row_of(profile, "aten::matmul").calls, 3);
  EXPECT_EQ(row_of(profile, "aten::mm").calls, 3 + 1 + 2) << "and two in the backward pass";
  EXPECT_EQ(row_of(profile, "MmBackward").calls, 1);
  EXPECT_LT(row_of(profile, "aten::matmul").seconds, row_of(profile, "aten::mm").seconds)
      << "matmul calls mm, which does the work";
  double sum = 0;
  for (const auto& row : profile.rows()) sum += row.seconds;
  EXPECT_LE(sum, all.count()) << "no time is counted twice";
  EXPECT_TRUE(
      std::ranges::is_sorted(profile.rows(), std::greater(), &OperatorProfile::Row::seconds));
}

TEST(OperatorProfile, TheTableHasFifteenRowsAndTheRest) {
  OperatorProfile profile;
  for (int i = 0; i < 20; ++i) profile.add("operator" + std::to_string(i), 1000 - i);
  const std::string table = profile.table();
  EXPECT_THAT(table, HasSubstr("\noperator0 "));
  EXPECT_THAT(table, HasSubstr("\noperator14 "));
  EXPECT_THAT(table, Not(HasSubstr("\noperator15 ")));
  EXPECT_THAT(table, testing::ContainsRegex("5 others +5 +4915.000"));
  EXPECT_LT(table.find("operator0 "), table.find("operator14 "));
}

TEST(OperatorProfile, MeasuresNothingAfterwardsAndOneAtATime) {
  {
    const OperatorProfile first;
    EXPECT_THROW(OperatorProfile(), Error);
  }
  torch::ones({2}).add(1);
  const OperatorProfile second;
  EXPECT_TRUE(second.rows().empty());
}

// Returns what the run prints.
std::string printed(const TrainOptions& options, std::string& hash) {
  testing::internal::CaptureStdout();
  hash = toy::train(options).weights_hash;
  return testing::internal::GetCapturedStdout();
}

TEST(OperatorProfile, ARunShowsItIfItIsAskedFor) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.console = true;
  std::string plain;
  EXPECT_THAT(printed(options, plain), Not(HasSubstr("aten::")));
  options.model = toy::model();
  options.logdir = folder / "run";
  options.profile_operators = true;
  std::string measured;
  EXPECT_THAT(printed(options, measured), HasSubstr("aten::"));
  EXPECT_THAT(read_file(folder / "run/operators.txt"), HasSubstr("aten::"));
  EXPECT_EQ(measured, plain) << "the same weights";
}

}  // namespace
}  // namespace lockstep
