// How the columns of a table become numbers: which columns, their types, categories and statistics.
// It is found in the training file and used for all other files, so that the same cell has the same
// number everywhere.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::data {

enum class ColumnType { kNumber, kCategory };

// Features that have no value. A target without a value is always an error, except with kDrop.
enum class Missing {
  kError,
  kMean,   // the mean of the training file; for categories, its most frequent one
  kValue,  // a given number; for categories, the category "" (an empty text), which each column has
  kDrop,   // rows with such a cell are left out
};

// A category that the training file does not have.
enum class UnknownCategory {
  kError,
  kCode,  // one code more than there are categories; with one-hot columns, zeros in all of them
};

struct TableColumn {
  std::string name;  // or its number, in a file without a header
  ColumnType type = ColumnType::kNumber;
  // Of a column of numbers. The standard deviation is 1 if all numbers are equal.
  double mean = 0;
  double std = 1;
  // Of a column of categories: the code of a category is its place in the list.
  std::vector<std::string> categories = {};
  std::string most_frequent = {};

  bool operator==(const TableColumn&) const = default;
};

struct TableSchema {
  std::vector<TableColumn> features = {};
  std::vector<TableColumn> targets = {};
  Missing missing = Missing::kError;
  double missing_value = 0;
  std::vector<std::string> missing_values = {};  // cells that mean "no value"
  UnknownCategory unknown = UnknownCategory::kError;
  bool normalize = false;  // numbers of features are (x - mean) / std
  bool one_hot = false;    // a category is one column of features per category

  bool operator==(const TableSchema&) const = default;
};

// Throws DataError if a number or a list in it makes no sense.
void check_table_schema(const TableSchema& schema);

// Writes it as JSON, with all digits of the numbers. The file is complete or not there. A file that
// has the same content already is left alone.
void write_table_schema(const TableSchema& schema, const std::filesystem::path& path);

// Throws DataError, which names the file, if it is missing or is not such a file.
TableSchema read_table_schema(const std::filesystem::path& path);

}  // namespace lockstep::data
