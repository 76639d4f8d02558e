// The rows of a text of separated values, as RFC 4180 defines them: a cell in quotes may contain
// separators, line ends and doubled quotes. Lines end with LF or CRLF. Empty lines are left out.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

class CsvRows {
 public:
  // `text` must exist as long as the object.
  CsvRows(std::string_view text, char separator);

  // Puts the cells of the next row into `cells`, and returns false if there is none. The cells are
  // valid until the next call. Throws DataError, which names the line, if quotes or line ends are
  // wrong, or if there is a zero byte.
  bool next(std::vector<std::string_view>& cells);

  // The line, from 1, in which the last row begins.
  std::int64_t line() const { return row_line_; }

 private:
  std::string_view plain_cell();
  std::string_view quoted_cell();
  // Whether a line ends here. Throws DataError for a carriage return without a line feed.
  bool is_line_end() const;
  void skip_line_end();

  std::string_view text_;
  char separator_;
  std::array<bool, 256> is_special_{};  // bytes at which a plain cell ends or is wrong
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
  std::int64_t row_line_ = 0;
  std::deque<std::string> unescaped_;  // cells of the row with doubled quotes
};

// A cell as a message shows it: printable, and a long one is cut.
std::string shown_cell(std::string_view cell);

}  // namespace lockstep::data
