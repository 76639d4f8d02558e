#include "lockstep/source/csv_rows.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {

CsvRows::CsvRows(std::string_view text, char separator) : text_(text), separator_(separator) {
  for (const char special : {separator, '"', '\n', '\r', '\0'}) {
    is_special_[static_cast<unsigned char>(special)] = true;
  }
}

bool CsvRows::next(std::vector<std::string_view>& cells) {
  cells.clear();
  unescaped_.clear();
  while (at_ < text_.size() && is_line_end()) skip_line_end();
  if (at_ == text_.size()) return false;
  row_line_ = line_;
  for (;;) {
    const bool is_quoted = at_ < text_.size() && text_[at_] == '"';
    cells.push_back(is_quoted ? quoted_cell() : plain_cell());
    if (at_ == text_.size()) return true;
    if (text_[at_] != separator_) break;
    ++at_;
  }
  skip_line_end();
  return true;
}

std::string_view CsvRows::plain_cell() {
  const std::size_t begin = at_;
  while (at_ < text_.size() && !is_special_[static_cast<unsigned char>(text_[at_])]) ++at_;
  const std::string_view cell = text_.substr(begin, at_ - begin);
  if (at_ == text_.size() || text_[at_] == separator_ || is_line_end()) return cell;
  if (text_[at_] == '"') {
    throw DataError(
        "line {}: a quote inside the cell '{}'; expected the whole cell in quotes, and the quotes "
        "in it doubled",
        line_, shown_cell(cell));
  }
  throw DataError("line {}: a zero byte; expected UTF-8 text", line_);
}

std::string_view CsvRows::quoted_cell() {
  const std::int64_t first_line = line_;
  std::string* unescaped = nullptr;
  for (std::size_t begin = ++at_;;) {
    const std::size_t quote = text_.find('"', at_);
    if (quote == std::string_view::npos) {
      throw DataError("line {}: a quote begins a cell and is never closed", first_line);
    }
    const std::string_view piece = text_.substr(begin, quote - begin);
    if (piece.find('\0') != std::string_view::npos) {
      throw DataError("line {}: a zero byte; expected UTF-8 text", first_line);
    }
    line_ += std::count(piece.begin(), piece.end(), '\n');
    at_ = quote + 1;
    const bool is_doubled = at_ < text_.size() && text_[at_] == '"';
    if (is_doubled) {
      if (unescaped == nullptr) unescaped = &unescaped_.emplace_back();
      unescaped->append(piece) += '"';
      begin = ++at_;
      continue;
    }
    if (at_ < text_.size() && text_[at_] != separator_ && !is_line_end()) {
      throw DataError("line {}: expected a separator after the quote that closes a cell, got '{}'",
                      line_, text_[at_]);
    }
    if (unescaped == nullptr) return piece;
    return unescaped->append(piece);
  }
}

bool CsvRows::is_line_end() const {
  if (text_[at_] == '\n') return true;
  if (text_[at_] != '\r') return false;
  if (at_ + 1 < text_.size() && text_[at_ + 1] == '\n') return true;
  throw DataError(
      "line {}: a carriage return without a line feed; expected lines that end with LF or CRLF",
      line_);
}

std::string shown_cell(std::string_view cell) {
  return excerpt(cell);
}

void CsvRows::skip_line_end() {
  at_ += text_[at_] == '\r' ? 2 : 1;
  ++line_;
}

}  // namespace lockstep::data
