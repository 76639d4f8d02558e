#include "lockstep/source/csv_rows.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using TextRows = std::vector<std::vector<std::string>>;

TextRows all_rows(std::string_view text, char separator = ',') {
  CsvRows rows(text, separator);
  TextRows all;
  for (std::vector<std::string_view> cells; rows.next(cells);) {
    all.emplace_back(cells.begin(), cells.end());
  }
  return all;
}

std::string rows_error(std::string_view text) {
  return error_text<DataError>([&] { all_rows(text); });
}

TEST(CsvRows, SeparatesCells) {
  EXPECT_EQ(all_rows("a,b\n1,2\n"), (TextRows{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(all_rows("a\tb,c\n", '\t'), (TextRows{{"a", "b,c"}}));
  EXPECT_EQ(all_rows(",\n"), (TextRows{{"", ""}}));
  EXPECT_EQ(all_rows(""), TextRows());
}

TEST(CsvRows, ReadsTheLastLineWithoutAnEnd) {
  EXPECT_EQ(all_rows("a,b\n1,2"), (TextRows{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(all_rows("a,"), (TextRows{{"a", ""}}));
  EXPECT_EQ(all_rows("\"a\""), (TextRows{{"a"}}));
}

TEST(CsvRows, TakesQuotedCellsAsRfc4180Says) {
  EXPECT_EQ(all_rows("\"a,b\",\"line\r\nbreak\",\"say \"\"hi\"\"\"\n\"\",x\n"),
            (TextRows{{"a,b", "line\r\nbreak", "say \"hi\""}, {"", "x"}}));
  EXPECT_EQ(all_rows("\"\"\"\",\"a\"\"b\"\"c\"\n"), (TextRows{{"\"", "a\"b\"c"}}));
}

TEST(CsvRows, TakesLinesOfWindowsAndLeavesEmptyOnesOut) {
  EXPECT_EQ(all_rows("a,b\r\n\r\n1,2\r\n\n\n"), (TextRows{{"a", "b"}, {"1", "2"}}));
}

TEST(CsvRows, CountsLinesInsideCells) {
  CsvRows rows("a\n\n\"x\ny\"\nb\n", ',');
  std::vector<std::string_view> cells;
  std::vector<std::int64_t> lines;
  while (rows.next(cells)) lines.push_back(rows.line());
  EXPECT_THAT(lines, ElementsAre(1, 3, 5));
}

TEST(CsvRows, NamesTheLineOfAMistake) {
  EXPECT_THAT(rows_error("a\nb\n\"c\nd"), HasSubstr("line 3: a quote begins a cell and is never"));
  EXPECT_THAT(rows_error("a\n5\" pipe\n"), HasSubstr("line 2: a quote inside the cell '5'"));
  EXPECT_THAT(rows_error("a\n\"b\"c\n"), HasSubstr("line 2: expected a separator after the quote"));
  EXPECT_THAT(rows_error("a\rb\n"), HasSubstr("line 1: a carriage return without a line feed"));
  EXPECT_THAT(rows_error(std::string_view("a\nb\0c\n", 6)), HasSubstr("line 2: a zero byte"));
  EXPECT_THAT(rows_error(std::string_view("\"b\0c\"\n", 6)), HasSubstr("line 1: a zero byte"));
}

TEST(CsvRows, ALongCellIsShownInPart) {
  EXPECT_EQ(shown_cell("short"), "short");
  EXPECT_EQ(shown_cell(std::string(100, 'x')), std::string(60, 'x') + "…");
}

}  // namespace
}  // namespace lockstep::data
