#include "lockstep/source/csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/source/byte_reader.h"
#include "lockstep/source/csv_rows.h"

namespace lockstep::data {
namespace fs = std::filesystem;
namespace {

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();
constexpr std::int32_t kNoText = -1;

std::string_view without_spaces(std::string_view cell) {
  while (cell.starts_with(' ') || cell.starts_with('\t')) cell.remove_prefix(1);
  while (cell.ends_with(' ') || cell.ends_with('\t')) cell.remove_suffix(1);
  return cell;
}

// Nothing if the cell is not a number. Infinite if the number is too large.
std::optional<double> number_in(std::string_view cell) {
  cell = without_spaces(cell);
  if (cell.starts_with('+') && !cell.starts_with("+-")) cell.remove_prefix(1);
  const char* const end = cell.data() + cell.size();
  double number = 0;
  const auto parsed = std::from_chars(cell.data(), end, number);
  if (parsed.ptr != end || parsed.ec == std::errc::invalid_argument) return std::nullopt;
  if (parsed.ec == std::errc()) return number;
  // Too large or too small for a double. A long double, which has more exponents, tells which.
  long double wide = 0;
  const auto again = std::from_chars(cell.data(), end, wide);
  return again.ec == std::errc() ? static_cast<double>(wide) : HUGE_VAL;
}

// The cells that mean "no value".
class NoValues {
 public:
  explicit NoValues(const std::vector<std::string>& texts) : texts_(texts) {
    for (const std::string& text : texts) {
      if (!text.empty()) begins_[static_cast<unsigned char>(text.front())] = true;
      has_empty_ = has_empty_ || text.empty();
    }
  }

  bool contain(std::string_view cell) const {
    cell = without_spaces(cell);
    if (cell.empty()) return has_empty_;
    // Most cells are numbers, and no text begins as they do.
    if (!begins_[static_cast<unsigned char>(cell.front())]) return false;
    return std::ranges::find(texts_, cell) != texts_.end();
  }

 private:
  const std::vector<std::string>& texts_;
  std::array<bool, 256> begins_{};
  bool has_empty_ = false;
};

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

// The cells of one column, as they are read.
class CellColumn {
 public:
  CellColumn(std::string name, std::size_t index, std::optional<ColumnType> type)
      : name_(std::move(name)), index_(index), type_(type) {}

  const std::string& name() const { return name_; }
  std::size_t index() const { return index_; }
  ColumnType type() const { return *type_; }

  void add(std::string_view cell, const NoValues& no_values, std::int64_t line) {
    if (type_ == ColumnType::kCategory) {
      codes_.push_back(no_values.contain(cell) ? kNoText : code_of(cell, line));
      return;
    }
    if (no_values.contain(cell)) {
      numbers_.push_back(kNoNumber);
    } else if (const auto number = number_in(cell)) {
      const auto value = static_cast<float>(*number);
      numbers_.push_back(std::isfinite(value) ? value : kNoNumber);
      ++number_cells_;
    } else {
      add_text_among_numbers(cell, line);
    }
  }

  // Decides the type of a column that had none. True if its cells must be read again, as texts.
  bool decide() {
    if (type_) return false;
    if (text_cells_ == 0) {
      type_ = ColumnType::kNumber;
      return false;
    }
    if (number_cells_ > text_cells_) {
      throw DataError(
          "line {}: column '{}': '{}' is not a number, but {} of {} cells of the column are; say "
          "in types whether it has numbers or categories, or add the text to missing_values",
          first_text_line_, name_, first_text_, number_cells_, number_cells_ + text_cells_);
    }
    type_ = ColumnType::kCategory;
    numbers_ = {};
    return true;
  }

  bool is_missing(std::size_t row) const {
    return type_ == ColumnType::kNumber ? std::isnan(numbers_[row]) : codes_[row] == kNoText;
  }

  const std::vector<float>& numbers() const { return numbers_; }
  const std::vector<std::int32_t>& codes() const { return codes_; }  // places in texts()
  const std::vector<std::string>& texts() const { return texts_; }   // in order of appearance

 private:
  void add_text_among_numbers(std::string_view cell, std::int64_t line) {
    if (type_) {
      throw DataError("line {}: column '{}': expected a number, got '{}'", line, name_,
                      shown_cell(cell));
    }
    if (text_cells_++ > 0) return;
    first_text_ = shown_cell(cell);
    first_text_line_ = line;
  }

  std::int32_t code_of(std::string_view cell, std::int64_t line) {
    const auto found = places_.find(cell);
    if (found != places_.end()) return found->second;
    if (!is_utf8(cell)) {
      throw DataError(
          "line {}: column '{}': '{}' is not UTF-8; convert the file, for example by iconv", line,
          name_, shown_cell(cell));
    }
    if (texts_.size() == std::numeric_limits<std::int32_t>::max()) {
      throw DataError("line {}: column '{}': too many categories", line, name_);
    }
    const auto code = static_cast<std::int32_t>(texts_.size());
    texts_.emplace_back(cell);
    places_.emplace(texts_.back(), code);
    return code;
  }

  std::string name_;
  std::size_t index_;               // in a row of the file
  std::optional<ColumnType> type_;  // none until all cells are read
  std::vector<float> numbers_;
  std::vector<std::int32_t> codes_;
  std::vector<std::string> texts_;
  std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>> places_;
  // Of a column without a type:
  std::int64_t number_cells_ = 0;
  std::int64_t text_cells_ = 0;
  std::string first_text_;
  std::int64_t first_text_line_ = 0;
};

char separator_of(const CsvOptions& options) {
  if (!options.separator) {
    fs::path name = options.path.filename();
    if (name.extension() == ".gz") name = name.stem();
    return name.extension() == ".tsv" || name.extension() == ".tab" ? '\t' : ',';
  }
  const std::string& given = *options.separator;
  if (given.size() != 1 || given.find_first_of(std::string_view("\"\r\n\0", 4)) == 0) {
    throw ConfigError("separator: expected one character, such as ';', got '{}'", given);
  }
  return given.front();
}

// The text of a file, without the mark that some programs put before UTF-8.
class CsvText {
 public:
  explicit CsvText(const fs::path& path) : content_(read_unpacked(path)), text_(content_) {
    if (text_.starts_with("\xff\xfe") || text_.starts_with("\xfe\xff")) {
      throw DataError(
          "the file is UTF-16; expected UTF-8: save it as that, or convert it by iconv");
    }
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
  }
  CsvText(const CsvText&) = delete;
  CsvText& operator=(const CsvText&) = delete;

  std::string_view view() const { return text_; }

 private:
  std::string content_;
  std::string_view text_;
};

// The columns of a file by name. Without a header the names are numbers.
class ColumnNames {
 public:
  ColumnNames() = default;
  ColumnNames(std::vector<std::string> names, const fs::path& path)
      : names_(std::move(names)), file_(path.string()) {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (!places_.emplace(names_[i], i).second) twice_.insert(names_[i]);
    }
  }

  const std::vector<std::string>& all() const { return names_; }

  // Which column has this name. `option` is where the user wrote it.
  std::size_t place_of(const std::string& name, const char* option) const {
    const auto found = places_.find(name);
    if (found == places_.end()) {
      throw ConfigError("{}: {} has no column '{}'; {}", option, file_, name,
                        suggest(name, names_));
    }
    if (twice_.contains(name)) {
      throw ConfigError("{}: {} has two columns '{}'; rename one of them", option, file_,
                        shown_cell(name));
    }
    return found->second;
  }

 private:
  std::vector<std::string> names_;
  std::string file_;
  std::unordered_map<std::string, std::size_t> places_;
  std::unordered_set<std::string> twice_;
};

ColumnNames column_names(const CsvText& text, const CsvOptions& options) {
  std::vector<std::string_view> cells;
  CsvRows rows(text.view(), separator_of(options));
  if (!rows.next(cells)) throw DataError("the file is empty; expected rows of cells");
  std::vector<std::string> names;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    names.push_back(options.header ? std::string(cells[i]) : std::to_string(i));
    if (!is_utf8(names.back())) {
      throw DataError(
          "line {}: the name of column {} is not UTF-8; convert the file, for example by iconv",
          rows.line(), i);
    }
  }
  return {std::move(names), options.path};
}

// The schema before the file is read: names of columns, and the types that are known.
struct TablePlan {
  TableSchema schema;
  std::vector<CellColumn> features;
  std::vector<CellColumn> targets;
};

std::vector<std::string> names_of(const std::vector<TableColumn>& columns) {
  std::vector<std::string> names;
  for (const TableColumn& column : columns) names.push_back(column.name);
  return names;
}

// Names in `types` and `categories` must be those of columns that are used.
template <typename T>
void check_used(const char* option, const std::map<std::string, T>& by_name,
                const std::vector<std::string>& used) {
  for (const auto& [name, value] : by_name) {
    if (std::ranges::find(used, name) == used.end()) {
      throw ConfigError("{}: '{}' is not a feature or target; {}", option, name,
                        suggest(name, used));
    }
  }
}

template <typename T>
void refuse_difference(const char* option, const T& given, const T& fallback, const T& of_schema) {
  if (given == fallback || given == of_schema) return;
  throw ConfigError(
      "{}: the schema says something else; leave this option out, or change it where the schema "
      "comes from: the loader of the training data, unless you gave one",
      option);
}

// Whether a table may treat missing values in this way although its schema has another one. No
// value that is there gets another code by it.
bool can_replace(Missing missing) {
  return missing == Missing::kMean || missing == Missing::kDrop;
}

// The given schema for a file that may have more missing values and categories than the training
// data.
TableSchema schema_for(const CsvOptions& options) {
  TableSchema schema = *options.schema;
  if (can_replace(options.missing)) schema.missing = options.missing;
  if (options.unknown != CsvOptions{}.unknown) schema.unknown = options.unknown;
  return schema;
}

void check_against_schema(const CsvOptions& options) {
  const TableSchema& schema = *options.schema;
  const CsvOptions plain;
  std::vector<std::string> used = names_of(schema.features);
  for (const TableColumn& column : schema.targets) used.push_back(column.name);
  check_used("types", options.types, used);
  check_used("categories", options.categories, used);
  refuse_difference("features", options.features, plain.features, names_of(schema.features));
  refuse_difference("targets", options.targets, plain.targets, names_of(schema.targets));
  // Others would need a category that the schema does not have.
  if (!can_replace(options.missing)) {
    refuse_difference("missing", options.missing, plain.missing, schema.missing);
  }
  refuse_difference("missing_value", options.missing_value, plain.missing_value,
                    schema.missing_value);
  refuse_difference("missing_values", options.missing_values, plain.missing_values,
                    schema.missing_values);
  refuse_difference("normalize", options.normalize, plain.normalize, schema.normalize);
  refuse_difference("one_hot", options.one_hot, plain.one_hot, schema.one_hot);
  for (const std::vector<TableColumn>* columns : {&schema.features, &schema.targets}) {
    for (const TableColumn& column : *columns) {
      if (const auto type = options.types.find(column.name); type != options.types.end()) {
        refuse_difference("types", type->second, column.type, column.type);
      }
      if (const auto list = options.categories.find(column.name);
          list != options.categories.end()) {
        refuse_difference("categories", list->second, column.categories, column.categories);
      }
    }
  }
}

void check_categories(const CsvOptions& options) {
  for (const auto& [name, list] : options.categories) {
    std::vector<std::string> sorted = list;
    std::ranges::sort(sorted);
    if (list.empty() || std::ranges::adjacent_find(sorted) != sorted.end()) {
      throw ConfigError("categories: '{}': expected different texts, got {}", name,
                        list.empty() ? "none" : "one of them twice");
    }
    if (const auto type = options.types.find(name);
        type != options.types.end() && type->second != ColumnType::kCategory) {
      throw ConfigError("categories: the type of '{}' is number", name);
    }
  }
}

// The schema that options describe. Types and categories that they leave open are found later.
TableSchema schema_of(const CsvOptions& options, const ColumnNames& names) {
  std::vector<std::string> features = options.features;
  if (features.empty()) {
    std::ranges::copy_if(names.all(), std::back_inserter(features), [&](const std::string& name) {
      return std::ranges::find(options.targets, name) == options.targets.end();
    });
    // The numbers of the rows would be learned by heart.
    if (std::ranges::find(features, std::string()) != features.end()) {
      throw ConfigError(
          "features: a column of {} has no name, as an index that pandas writes; name the columns "
          "to use",
          options.path.string());
    }
  }
  std::vector<std::string> used = features;
  used.insert(used.end(), options.targets.begin(), options.targets.end());
  check_used("types", options.types, used);
  check_used("categories", options.categories, used);
  check_categories(options);
  std::unordered_set<std::string_view> seen;
  for (const std::string& name : used) {
    if (!seen.insert(name).second) {
      throw ConfigError("features: the column '{}' is used twice", shown_cell(name));
    }
  }
  if (features.empty()) throw ConfigError("features: expected a column that is not a target");
  TableSchema schema{.missing = options.missing,
                     .missing_value = options.missing_value,
                     .missing_values = options.missing_values,
                     .unknown = options.unknown,
                     .normalize = options.normalize,
                     .one_hot = options.one_hot};
  const auto column = [](const std::string& name) { return TableColumn{.name = name}; };
  std::ranges::transform(features, std::back_inserter(schema.features), column);
  std::ranges::transform(options.targets, std::back_inserter(schema.targets), column);
  return schema;
}

TablePlan plan_table(const CsvOptions& options, const ColumnNames& names) {
  if (options.schema) check_against_schema(options);
  if (options.without_targets && !options.schema) {
    throw ConfigError("without_targets: it is for a schema with targets, but there is no schema");
  }
  if (!std::isfinite(options.missing_value)) {
    throw ConfigError("missing_value: expected a number, got {}", options.missing_value);
  }
  TablePlan plan{.schema = options.schema ? schema_for(options) : schema_of(options, names),
                 .features = {},
                 .targets = {}};
  const auto type_of = [&](const TableColumn& column) -> std::optional<ColumnType> {
    if (options.schema) return column.type;
    if (options.categories.contains(column.name)) return ColumnType::kCategory;
    const auto type = options.types.find(column.name);
    return type == options.types.end() ? std::nullopt : std::optional(type->second);
  };
  for (const TableColumn& column : plan.schema.features) {
    plan.features.emplace_back(column.name, names.place_of(column.name, "features"),
                               type_of(column));
  }
  if (options.without_targets) return plan;
  for (const TableColumn& column : plan.schema.targets) {
    plan.targets.emplace_back(column.name, names.place_of(column.name, "targets"), type_of(column));
  }
  return plan;
}

// One pass over the cells of the file.
struct CellPass {
  const CsvText& text;
  const CsvOptions& options;
  const NoValues& no_values;
  std::size_t width;  // cells of a row
};

// Adds the cells of all rows to the columns, and returns the lines of the rows.
std::vector<std::int64_t> read_cells(const CellPass& pass,
                                     const std::vector<CellColumn*>& columns) {
  CsvRows rows(pass.text.view(), separator_of(pass.options));
  std::vector<std::string_view> cells;
  std::vector<std::int64_t> lines;
  if (pass.options.header) rows.next(cells);
  while (rows.next(cells)) {
    if (cells.size() != pass.width) {
      throw DataError("line {}: {} cells, expected {}, as many as the first line has", rows.line(),
                      cells.size(), pass.width);
    }
    for (CellColumn* const column : columns) {
      column->add(cells[column->index()], pass.no_values, rows.line());
    }
    lines.push_back(rows.line());
  }
  return lines;
}

// The table as it was read: its columns, and which of its rows are used.
class Table {
 public:
  Table(const CsvText& text, const CsvOptions& options, std::size_t width, TablePlan plan)
      : options_(options),
        schema_(std::move(plan.schema)),
        features_(std::move(plan.features)),
        targets_(std::move(plan.targets)) {
    const NoValues no_values(schema_.missing_values);
    const CellPass pass{.text = text, .options = options, .no_values = no_values, .width = width};
    std::vector<CellColumn*> columns;
    for (CellColumn& column : features_) columns.push_back(&column);
    for (CellColumn& column : targets_) columns.push_back(&column);
    lines_ = read_cells(pass, columns);
    std::erase_if(columns, [](CellColumn* column) { return !column->decide(); });
    if (!columns.empty()) read_cells(pass, columns);
    choose_rows();
    if (!options.schema) fit();
  }

  std::shared_ptr<const TableDataset> dataset() const {
    std::vector<Column> columns;
    add_features(columns);
    add_targets(columns);
    std::vector<std::int64_t> lines;
    lines.reserve(rows_.size());
    for (const std::size_t row : rows_) lines.push_back(lines_[row]);
    return std::make_shared<const TableDataset>(
        std::move(columns), schema_,
        TableDataset::Origin{.path = options_.path, .lines = std::move(lines)});
  }

 private:
  // All rows, or those without missing values. Throws DataError if a value must not be missing.
  void choose_rows() {
    rows_.resize(lines_.size());
    std::iota(rows_.begin(), rows_.end(), std::size_t{0});
    if (rows_.empty()) throw DataError("the file has no rows of values");
    if (schema_.missing == Missing::kDrop) {
      const auto is_missing_in = [](const std::vector<CellColumn>& columns, std::size_t row) {
        return std::ranges::any_of(columns, [&](const CellColumn& c) { return c.is_missing(row); });
      };
      std::erase_if(rows_, [&](std::size_t row) {
        return is_missing_in(features_, row) || is_missing_in(targets_, row);
      });
      if (rows_.empty()) throw DataError("all {} rows have missing values", lines_.size());
      return;
    }
    for (const CellColumn& column : targets_) {
      refuse_missing(column, "a target; set missing to drop to leave such rows out");
    }
    if (schema_.missing != Missing::kError) return;
    for (const CellColumn& column : features_) {
      refuse_missing(column, "set missing to mean, value or drop");
    }
  }

  void refuse_missing(const CellColumn& column, const char* advice) const {
    const auto first =
        std::ranges::find_if(rows_, [&](std::size_t row) { return column.is_missing(row); });
    if (first == rows_.end()) return;
    const auto count =
        std::count_if(first, rows_.end(), [&](std::size_t row) { return column.is_missing(row); });
    throw DataError("line {}: column '{}': the value is missing, or not finite ({} of {} rows); {}",
                    lines_[*first], column.name(), count, rows_.size(), advice);
  }

  // Finds types, categories and statistics.
  void fit() {
    for (std::size_t i = 0; i < features_.size(); ++i) {
      fit(features_[i], schema_.features[i]);
      if (schema_.missing == Missing::kValue) add_missing_category(schema_.features[i]);
    }
    for (std::size_t i = 0; i < targets_.size(); ++i) fit(targets_[i], schema_.targets[i]);
  }

  void fit(const CellColumn& cells, TableColumn& column) const {
    column.type = cells.type();
    if (column.type == ColumnType::kNumber) {
      fit_numbers(cells, column);
    } else {
      fit_categories(cells, column);
    }
  }

  void fit_numbers(const CellColumn& cells, TableColumn& column) const {
    double sum = 0;
    std::int64_t count = 0;
    for (const std::size_t row : rows_) {
      if (cells.is_missing(row)) continue;
      sum += cells.numbers()[row];
      ++count;
    }
    if (count == 0) {
      throw DataError("column '{}': all values are missing; leave the column out", column.name);
    }
    column.mean = sum / static_cast<double>(count);
    double squares = 0;
    for (const std::size_t row : rows_) {
      if (cells.is_missing(row)) continue;
      const double difference = cells.numbers()[row] - column.mean;
      squares += difference * difference;
    }
    const double std = std::sqrt(squares / static_cast<double>(count));
    column.std = std > 0 ? std : 1;
  }

  void fit_categories(const CellColumn& cells, TableColumn& column) const {
    std::map<std::string, std::int64_t> counts;
    std::vector<std::int64_t> by_code(cells.texts().size());
    std::int64_t missing = 0;
    for (const std::size_t row : rows_) {
      const std::int32_t code = cells.codes()[row];
      ++(code == kNoText ? missing : by_code[static_cast<std::size_t>(code)]);
    }
    for (std::size_t i = 0; i < by_code.size(); ++i) {
      if (by_code[i] > 0) counts[cells.texts()[i]] = by_code[i];
    }
    if (missing > 0 && schema_.missing == Missing::kValue) counts[""] += missing;
    if (counts.empty()) {
      throw DataError("column '{}': all values are missing; leave the column out", column.name);
    }
    const auto given = options_.categories.find(column.name);
    column.categories = given != options_.categories.end() ? given->second : sorted_texts(counts);
    // The first one of those that are equally frequent.
    std::int64_t most = -1;
    for (const std::string& category : column.categories) {
      const auto found = counts.find(category);
      const std::int64_t count = found == counts.end() ? 0 : found->second;
      if (count <= most) continue;
      most = count;
      column.most_frequent = category;
    }
  }

  // Another file may have missing cells even if this one has none. The category comes last, so that
  // the codes of the others stay the same. A list that the user has given is complete.
  void add_missing_category(TableColumn& column) const {
    if (column.type != ColumnType::kCategory || options_.categories.contains(column.name)) return;
    if (std::ranges::find(column.categories, std::string()) != column.categories.end()) return;
    column.categories.emplace_back();
  }

  static std::vector<std::string> sorted_texts(const std::map<std::string, std::int64_t>& counts) {
    std::vector<std::string> texts;
    for (const auto& [text, count] : counts) texts.push_back(text);
    const auto number = [](const std::string& text) { return number_in(text); };
    const bool are_numbers = std::ranges::all_of(texts, [&](const std::string& text) {
      const auto value = number(text);
      return value && !std::isnan(*value);
    });
    if (are_numbers) std::ranges::stable_sort(texts, {}, [&](const auto& t) { return *number(t); });
    return texts;
  }

  void add_features(std::vector<Column>& columns) const {
    const auto count = static_cast<std::int64_t>(rows_.size());
    std::int64_t width = 0, categories = 0;
    for (const TableColumn& column : schema_.features) {
      if (column.type == ColumnType::kNumber) {
        ++width;
      } else if (schema_.one_hot) {
        width += static_cast<std::int64_t>(column.categories.size());
      } else {
        ++categories;
      }
    }
    check_width(width);
    torch::Tensor features = torch::zeros({count, width}, torch::kFloat32);
    torch::Tensor codes = torch::empty({count, categories}, torch::kInt64);
    std::int64_t next_feature = 0, next_code = 0;
    for (std::size_t i = 0; i < features_.size(); ++i) {
      const TableColumn& column = schema_.features[i];
      if (column.type == ColumnType::kNumber) {
        write_numbers(features_[i], column, features.data_ptr<float>() + next_feature++, width);
      } else if (schema_.one_hot) {
        write_one_hot(features_[i], column, features.data_ptr<float>() + next_feature, width);
        next_feature += static_cast<std::int64_t>(column.categories.size());
      } else {
        write_codes(features_[i], column, schema_.unknown,
                    codes.data_ptr<std::int64_t>() + next_code++, categories);
      }
    }
    if (width > 0) columns.push_back({.key = "features", .tensor = std::move(features)});
    if (categories > 0) columns.push_back({.key = "categories", .tensor = std::move(codes)});
  }

  // One-hot columns of many categories may need far more memory than the file has.
  void check_width(std::int64_t width) const {
    constexpr std::int64_t kMostColumns = 4096;
    if (schema_.one_hot && width > kMostColumns) {
      throw DataError(
          "one_hot makes {} columns, expected at most {}; use an embedding of "
          "\"categories\" instead",
          width, kMostColumns);
    }
  }

  void add_targets(std::vector<Column>& columns) const {
    if (targets_.empty()) return;
    const auto count = static_cast<std::int64_t>(rows_.size());
    const auto width = static_cast<std::int64_t>(targets_.size());
    const bool are_numbers = schema_.targets.front().type == ColumnType::kNumber;
    torch::Tensor targets =
        torch::empty({count, width}, are_numbers ? torch::kFloat32 : torch::kInt64);
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const TableColumn& column = schema_.targets[i];
      if ((column.type == ColumnType::kNumber) != are_numbers) {
        throw DataError("the targets '{}' and '{}' are numbers and categories; expected one kind",
                        schema_.targets.front().name, column.name);
      }
      const auto at = static_cast<std::int64_t>(i);
      if (are_numbers) {
        float* to = targets.data_ptr<float>() + at;
        for (const std::size_t row : rows_) {
          *to = targets_[i].numbers()[row];
          to += width;
        }
      } else {
        write_codes(targets_[i], column, UnknownCategory::kError,
                    targets.data_ptr<std::int64_t>() + at, width);
      }
    }
    // Criterions want one class as a number, and numbers as a vector.
    if (!are_numbers && width == 1) targets = targets.squeeze(1);
    columns.push_back({.key = "targets", .tensor = std::move(targets)});
  }

  // All of these write one number per row, `stride` numbers apart.
  void write_numbers(const CellColumn& cells, const TableColumn& column, float* to,
                     std::int64_t stride) const {
    const double instead = schema_.missing == Missing::kMean ? column.mean : schema_.missing_value;
    for (const std::size_t row : rows_) {
      const double number = cells.is_missing(row) ? instead : cells.numbers()[row];
      *to = static_cast<float>(schema_.normalize ? (number - column.mean) / column.std : number);
      to += stride;
    }
  }

  void write_codes(const CellColumn& cells, const TableColumn& column, UnknownCategory unknown,
                   std::int64_t* to, std::int64_t stride) const {
    for_each_code(cells, column, unknown, [&](std::int64_t code) {
      *to = code;
      to += stride;
    });
  }

  void write_one_hot(const CellColumn& cells, const TableColumn& column, float* to,
                     std::int64_t stride) const {
    const auto known = static_cast<std::int64_t>(column.categories.size());
    for_each_code(cells, column, schema_.unknown, [&](std::int64_t code) {
      if (code < known) to[code] = 1;
      to += stride;
    });
  }

  template <typename Write>
  void for_each_code(const CellColumn& cells, const TableColumn& column, UnknownCategory unknown,
                     const Write& write) const {
    const auto known = static_cast<std::int64_t>(column.categories.size());
    std::unordered_map<std::string_view, std::int64_t> places;
    for (std::int64_t i = 0; i < known; ++i) {
      places.emplace(column.categories[static_cast<std::size_t>(i)], i);
    }
    const auto code_of = [&](const std::string& text) {
      const auto found = places.find(text);
      return found == places.end() ? known : found->second;
    };
    std::vector<std::int64_t> codes;
    for (const std::string& text : cells.texts()) codes.push_back(code_of(text));
    const std::string instead = schema_.missing == Missing::kMean ? column.most_frequent : "";
    const std::int64_t missing_code = code_of(instead);
    for (const std::size_t row : rows_) {
      const std::int32_t place = cells.codes()[row];
      const std::int64_t code =
          place == kNoText ? missing_code : codes[static_cast<std::size_t>(place)];
      if (code == known && unknown == UnknownCategory::kError) {
        const std::string& text =
            place == kNoText ? instead : cells.texts()[static_cast<std::size_t>(place)];
        throw DataError("line {}: column '{}': '{}' is not one of its {} categories; {}",
                        lines_[row], column.name, shown_cell(text), known,
                        suggest(text, column.categories));
      }
      write(code);
    }
  }

  const CsvOptions& options_;
  TableSchema schema_;
  std::vector<CellColumn> features_;
  std::vector<CellColumn> targets_;
  std::vector<std::int64_t> lines_;  // of all rows
  std::vector<std::size_t> rows_;    // those that are used
};

}  // namespace

TableDataset::TableDataset(std::vector<Column> columns, TableSchema schema, Origin origin)
    : TensorDataset(std::move(columns)), schema_(std::move(schema)), origin_(std::move(origin)) {}

std::string TableDataset::name_of(std::int64_t index) const {
  if (index < 0 || index >= size()) return TensorDataset::name_of(index);
  return fmt::format("sample {} ({}, line {})", index, origin_.path.string(),
                     origin_.lines[static_cast<std::size_t>(index)]);
}

std::shared_ptr<const TableDataset> csv_dataset(const CsvOptions& options) {
  separator_of(options);  // an error in the options is not one of the file
  const FileInMessage file{.path = options.path};
  std::unique_ptr<const CsvText> text;
  const ColumnNames names = reading<DataError>(file, [&] {
    text = std::make_unique<const CsvText>(options.path);
    return column_names(*text, options);
  });
  TablePlan plan = plan_table(options, names);
  auto dataset = reading<DataError>(
      file, [&] { return Table(*text, options, names.all().size(), std::move(plan)).dataset(); });
  if (options.save_schema) write_table_schema(dataset->schema(), *options.save_schema);
  return dataset;
}

}  // namespace lockstep::data
