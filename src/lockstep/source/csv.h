// Tables in CSV and TSV files. Rows are samples, columns are features and targets:
//
//   auto train = ls::data::csv_dataset({.path = "train.csv",
//                                       .features = {"age", "city"},
//                                       .targets = {"price"},
//                                       .normalize = true});
//   auto valid = ls::data::csv_dataset({.path = "valid.csv", .schema = train->schema()});
//
// Numbers become "features", float32 [F]. Columns of text are categories: their codes, in sorted
// order of the texts, become "categories", int64 [K], or columns of features (one_hot). "targets"
// are float32 [T], or a class, int64, if the target is a category. The second file uses categories
// and statistics of the first one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/tensor_dataset.h"
#include "lockstep/source/table_schema.h"

namespace lockstep::data {

struct CsvOptions {
  std::filesystem::path path = {};            // UTF-8 text, plain or gzip
  std::vector<std::string> features = {};     // names of columns; none: all that are not targets
  std::vector<std::string> targets = {};      // names of columns; none: no targets
  std::optional<std::string> separator = {};  // default: a tab for .tsv, else a comma
  bool header = true;  // the first row has names; otherwise columns are named "0", "1", …
  // Of columns by name. By default a column is a category if its cells are not numbers.
  std::map<std::string, ColumnType> types = {};
  // Of columns by name, in the order of their codes. Default: those in the file, sorted; if all of
  // them are numbers, they are sorted as numbers.
  std::map<std::string, std::vector<std::string>> categories = {};
  Missing missing = Missing::kError;  // what becomes of cells without a value
  double missing_value = 0;           // instead of them, with Missing::kValue; not normalised yet
  // Cells that mean "no value". Numbers that are infinite or NaN in float32 have no value, either.
  std::vector<std::string> missing_values = {"", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null"};
  UnknownCategory unknown = UnknownCategory::kError;  // of a category that is not in the list
  bool normalize = false;  // features are (x - mean) / std, with the statistics of this file
  bool one_hot = false;    // a category is one feature per category, in the place of its column
  // Of the training file. All options from `features` on, except separator and header, are in it;
  // they may be given again, but not differ.
  std::optional<TableSchema> schema = {};
  std::optional<std::filesystem::path> save_schema = {};  // write the schema to this file
  bool without_targets = false;  // leave the schema's targets out: the file does not have them
};

class TableDataset : public TensorDataset {
 public:
  struct Origin {
    std::filesystem::path path;
    std::vector<std::int64_t> lines;  // of the samples
  };
  TableDataset(std::vector<Column> columns, TableSchema schema, Origin origin);

  const TableSchema& schema() const { return schema_; }
  std::string name_of(std::int64_t index) const override;  // "sample 3 (train.csv, line 5)"

 private:
  TableSchema schema_;
  Origin origin_;
};

// Reads the whole table into memory. Throws ConfigError if options are wrong or a column is not in
// the file, and DataError, which names file and line, if the file is missing or damaged, if a row
// has more or fewer cells than the first one, or if a cell cannot be converted.
std::shared_ptr<const TableDataset> csv_dataset(const CsvOptions& options);

}  // namespace lockstep::data
