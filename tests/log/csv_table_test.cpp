#include "lockstep/log/csv_table.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"

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

const std::string kWhole = "step,\"a,b\",loss\n1,,0.5\n2,7,0.25\n3,8,0.1\n";
const std::map<std::int64_t, Metrics> kRows = {
    {1, {{"loss", 0.5}}}, {2, {{"a,b", 7}, {"loss", 0.25}}}, {3, {{"a,b", 8}, {"loss", 0.1}}}};

TEST(CsvTable, ACutAtAnyByteLosesNoRowThatIsGiven) {
  TemporaryDirectory folder;
  for (std::size_t size = 0; size <= kWhole.size(); ++size) {
    write_file_atomically(folder / "t.csv", kWhole.substr(0, size));
    CsvTable table(folder / "t.csv", {.keep_until = 3, .rows = kRows});
    EXPECT_EQ(read_file(folder / "t.csv"), kWhole) << size;
    table.add(4, {{"loss", 0}});
    EXPECT_EQ(read_file(folder / "t.csv"), kWhole + "4,,0\n") << size;
  }
  CsvTable(folder / "missing.csv", {.keep_until = 3, .rows = kRows});
  EXPECT_EQ(read_file(folder / "missing.csv"), kWhole);
}

TEST(CsvTable, ADamagedLineIsWrittenAgainIfItIsGiven) {
  TemporaryDirectory folder;
  std::vector<std::string> warnings;
  const auto before =
      set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  // Whole; another number of cells, twice; no step; other values, twice; two lines in one.
  const std::vector<std::string> lines = {"2,7,0.25",    "2,7",      "2,7,0.25,1",
                                          "\x13,7,0.25", "2,7,0.35", std::string("2,7,\0.25", 8),
                                          "2,7,0.2\"5"};
  for (const std::string& line : lines) {
    std::string text = kWhole;
    text.replace(text.find("2,7,0.25"), 8, line);
    write_file_atomically(folder / "t.csv", text);
    const CsvTable table(folder / "t.csv", {.keep_until = 3, .rows = kRows});
    EXPECT_EQ(read_file(folder / "t.csv"), kWhole) << line;
  }
  set_warning_handler(before);
  ASSERT_EQ(warnings.size(), 3u);
  EXPECT_THAT(warnings[0], HasSubstr("t.csv: line 3 is damaged"));
}

TEST(CsvTable, RowsThatAreNotGivenStay) {
  TemporaryDirectory folder;
  // Step 1 was before the given ones, and a callback has logged a row of its own in step 2.
  write_file_atomically(folder / "t.csv", "step,loss,own\n1,9,\n2,0.25,\n2,,6\n4,1,\n");
  const CsvTable table(folder / "t.csv",
                       {.keep_until = 3, .rows = {{2, {{"loss", 0.25}}}, {3, {{"loss", 0.5}}}}});
  EXPECT_EQ(read_file(folder / "t.csv"), "step,loss,own\n1,9,\n2,0.25,\n2,,6\n3,0.5,\n");
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
  write_file_atomically(folder / "t.csv", "date,price\n1,2\n");
  EXPECT_THROW(CsvTable(folder / "t.csv", {.keep_until = 3, .rows = kRows}), Error);
  EXPECT_EQ(read_file(folder / "t.csv"), "date,price\n1,2\n");
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
