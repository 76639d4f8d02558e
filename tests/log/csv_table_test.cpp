#include "lockstep/log/csv_table.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(CsvTable, AHeaderAndOneRowPerStep) {
  TemporaryDirectory folder;
  CsvTable table(folder / "train.csv");
  table.add(1, {{"loss", 0.5}, {"accuracy", 0.25}});
  table.add(2, {{"loss", 0.125}, {"accuracy", 1}});
  EXPECT_EQ(read_file(folder / "train.csv"), "step,accuracy,loss\n1,0.25,0.5\n2,1,0.125\n");
}

TEST(CsvTable, NumbersReadBackToTheSameBits) {
  TemporaryDirectory folder;
  const double value = 0.1 + 0.2;
  CsvTable(folder / "t.csv").add(1, {{"x", value}});
  const std::string text = read_file(folder / "t.csv");
  const std::string cell = text.substr(text.find("\n1,") + 3);
  EXPECT_EQ(std::strtod(cell.c_str(), nullptr), value);
}

TEST(CsvTable, WhatIsNoNumberIsWrittenAsSuch) {
  TemporaryDirectory folder;
  const double inf = std::numeric_limits<double>::infinity();
  CsvTable(folder / "t.csv").add(1, {{"a", -std::nan("")}, {"b", inf}, {"c", -inf}});
  EXPECT_EQ(read_file(folder / "t.csv"), "step,a,b,c\n1,nan,inf,-inf\n");
}

TEST(CsvTable, AColumnThatAppearsLaterLosesAndShiftsNothing) {
  TemporaryDirectory folder;
  CsvTable table(folder / "t.csv");
  table.add(1, {{"loss", 1}, {"z", 7}});
  table.add(2, {{"loss", 2}, {"z", 8}});
  table.add(3, {{"auc", 0.5}, {"loss", 3}, {"z", 9}});
  table.add(4, {{"loss", 4}});
  EXPECT_EQ(read_file(folder / "t.csv"), "step,auc,loss,z\n1,,1,7\n2,,2,8\n3,0.5,3,9\n4,,4,\n");
}

TEST(CsvTable, NamesWithSeparatorsSurviveAWidening) {
  TemporaryDirectory folder;
  CsvTable table(folder / "t.csv");
  table.add(1, {{"a,b", 1}, {"say \"x\"", 2}});
  table.add(2, {{"b", 3}});
  EXPECT_EQ(read_file(folder / "t.csv"), "step,\"a,b\",b,\"say \"\"x\"\"\"\n1,1,,2\n2,,3,\n");
}

TEST(CsvTable, AFreshTableReplacesAnOldFileWithItsFirstRow) {
  TemporaryDirectory folder;
  write_file_atomically(folder / "t.csv", "step,old\n1,5\n2,5\n");
  CsvTable table(folder / "t.csv");
  table.add(1, {{"loss", 0.5}});
  EXPECT_EQ(read_file(folder / "t.csv"), "step,loss\n1,0.5\n");
}

TEST(CsvTable, AResumedTableDropsLaterStepsAndGoesOn) {
  TemporaryDirectory folder;
  write_file_atomically(folder / "t.csv", "step,loss\n1,0.5\n2,0.25\n3,9\n");
  CsvTable table(folder / "t.csv", {.keep_until = 2});
  EXPECT_EQ(read_file(folder / "t.csv"), "step,loss\n1,0.5\n2,0.25\n");
  table.add(3, {{"loss", 0.125}});
  EXPECT_EQ(read_file(folder / "t.csv"), "step,loss\n1,0.5\n2,0.25\n3,0.125\n");
}

TEST(CsvTable, AResumedTableCanBeWidenedToo) {
  TemporaryDirectory folder;
  write_file_atomically(folder / "t.csv", "step,loss\n1,0.5\n");
  CsvTable table(folder / "t.csv", {.keep_until = 1});
  table.add(2, {{"auc", 1}, {"loss", 0.25}});
  EXPECT_EQ(read_file(folder / "t.csv"), "step,auc,loss\n1,,0.5\n2,1,0.25\n");
}

TEST(CsvTable, ATornLastLineIsLeftOutOnResume) {
  TemporaryDirectory folder;
  write_file_atomically(folder / "t.csv", "step,loss\n1,0.5\n2,0.");
  CsvTable table(folder / "t.csv", {.keep_until = 2});
  EXPECT_EQ(read_file(folder / "t.csv"), "step,loss\n1,0.5\n");
  write_file_atomically(folder / "u.csv", "ste");
  CsvTable(folder / "u.csv", {.keep_until = 2}).add(3, {{"loss", 1}});
  EXPECT_EQ(read_file(folder / "u.csv"), "step,loss\n3,1\n");
}

TEST(CsvTable, AFileThatIsNotOursIsNamedAndLeftAlone) {
  TemporaryDirectory folder;
  for (const std::string text : {"date,price\n1,2\n", "step,loss\n1,2,3\n", "step,loss\nx,2\n"}) {
    write_file_atomically(folder / "t.csv", text);
    try {
      CsvTable table(folder / "t.csv", {.keep_until = 5});
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr((folder / "t.csv").string()));
    }
    EXPECT_EQ(read_file(folder / "t.csv"), text);
  }
}

TEST(CsvTable, IsReadAsItWasWritten) {
  TemporaryDirectory folder;
  const double inf = std::numeric_limits<double>::infinity();
  const std::map<std::int64_t, Metrics> written = {
      {1, {{"a,b", 0.1 + 0.2}, {"low", -inf}}}, {2, {{"a,b", 1e-300}}}, {4, {{"new", -3}}}};
  CsvTable table(folder / "t.csv");
  for (const auto& [step, metrics] : written) table.add(step, metrics);
  EXPECT_EQ(read_csv_table(folder / "t.csv"), written);
  table.add(5, {{"new", std::nan("")}});
  EXPECT_TRUE(std::isnan(read_csv_table(folder / "t.csv").at(5).at("new")));
  write_file_atomically(folder / "u.csv", "step,x\n1,many\n");
  EXPECT_THROW(read_csv_table(folder / "u.csv"), Error);
}

}  // namespace
}  // namespace lockstep
