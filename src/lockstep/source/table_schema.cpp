#include "lockstep/source/table_schema.h"

#include <cmath>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::data {
namespace fs = std::filesystem;
namespace {

using SchemaJson = nlohmann::ordered_json;

constexpr const char* kSchemaFormat = "lockstep table";
constexpr int kSchemaVersion = 1;

// The names of an enumeration's values, in their order.
const std::vector<std::string> kTypeNames = {"number", "category"};
const std::vector<std::string> kMissingNames = {"error", "mean", "value", "drop"};
const std::vector<std::string> kUnknownNames = {"error", "code"};

template <typename E>
E read_name(const SchemaJson& json, const char* key, const std::vector<std::string>& names) {
  const auto name = json.at(key).get<std::string>();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<E>(i);
  }
  throw DataError("{}: '{}'; {}", key, name, suggest(name, names));
}

template <typename E>
const std::string& enum_name(E value, const std::vector<std::string>& names) {
  return names.at(static_cast<std::size_t>(value));
}

SchemaJson json_of(const TableColumn& column) {
  SchemaJson json = {{"name", column.name}, {"type", enum_name(column.type, kTypeNames)}};
  if (column.type == ColumnType::kNumber) {
    json["mean"] = column.mean;
    json["std"] = column.std;
  } else {
    json["categories"] = column.categories;
    json["most_frequent"] = column.most_frequent;
  }
  return json;
}

void check_column(const TableColumn& column) {
  if (column.type == ColumnType::kNumber) {
    for (const auto& [key, value] :
         {std::pair("mean", column.mean), std::pair("std", column.std)}) {
      if (std::isfinite(value)) continue;
      throw DataError("column '{}': {}: expected a number, got {}", column.name, key, value);
    }
    if (!(column.std > 0)) {
      throw DataError("column '{}': std: expected a number > 0, got {}", column.name, column.std);
    }
    return;
  }
  const std::set<std::string> distinct(column.categories.begin(), column.categories.end());
  if (distinct.size() != column.categories.size() || distinct.empty()) {
    throw DataError("column '{}': categories: expected different texts, got {} of {} of them",
                    column.name, distinct.size(), column.categories.size());
  }
  if (!distinct.contains(column.most_frequent)) {
    throw DataError("column '{}': most_frequent: '{}' is not one of its categories", column.name,
                    column.most_frequent);
  }
}

TableColumn column_from(const SchemaJson& json) {
  TableColumn column{.name = json.at("name").get<std::string>(),
                     .type = read_name<ColumnType>(json, "type", kTypeNames)};
  if (column.type == ColumnType::kNumber) {
    column.mean = json.at("mean").get<double>();
    column.std = json.at("std").get<double>();
  } else {
    column.categories = json.at("categories").get<std::vector<std::string>>();
    column.most_frequent = json.at("most_frequent").get<std::string>();
  }
  return column;
}

SchemaJson json_of(const std::vector<TableColumn>& columns) {
  SchemaJson json = SchemaJson::array();
  for (const TableColumn& column : columns) json.push_back(json_of(column));
  return json;
}

std::vector<TableColumn> columns_from(const SchemaJson& json) {
  if (!json.is_array()) throw DataError("expected a list of columns, got {}", json.type_name());
  std::vector<TableColumn> columns;
  for (const SchemaJson& column : json) columns.push_back(column_from(column));
  return columns;
}

TableSchema schema_from(const SchemaJson& json) {
  if (!json.is_object() || json.value("format", "") != kSchemaFormat) {
    throw DataError("expected the schema of a table, which save_schema writes");
  }
  if (const int version = json.at("version").get<int>(); version != kSchemaVersion) {
    throw DataError("expected version {} of the format, got {}", kSchemaVersion, version);
  }
  TableSchema schema{
      .features = columns_from(json.at("features")),
      .targets = columns_from(json.at("targets")),
      .missing = read_name<Missing>(json, "missing", kMissingNames),
      .missing_value = json.at("missing_value").get<double>(),
      .missing_values = json.at("missing_values").get<std::vector<std::string>>(),
      .unknown = read_name<UnknownCategory>(json, "unknown", kUnknownNames),
      .normalize = json.at("normalize").get<bool>(),
      .one_hot = json.at("one_hot").get<bool>(),
  };
  check_table_schema(schema);
  return schema;
}

}  // namespace

void check_table_schema(const TableSchema& schema) {
  if (schema.features.empty()) throw DataError("features: expected at least one column");
  for (const TableColumn& column : schema.features) check_column(column);
  for (const TableColumn& column : schema.targets) check_column(column);
  if (!std::isfinite(schema.missing_value)) {
    throw DataError("missing_value: expected a number, got {}", schema.missing_value);
  }
}

void write_table_schema(const TableSchema& schema, const fs::path& path) {
  const SchemaJson json = {{"format", kSchemaFormat},
                           {"version", kSchemaVersion},
                           {"features", json_of(schema.features)},
                           {"targets", json_of(schema.targets)},
                           {"missing", enum_name(schema.missing, kMissingNames)},
                           {"missing_value", schema.missing_value},
                           {"missing_values", schema.missing_values},
                           {"unknown", enum_name(schema.unknown, kUnknownNames)},
                           {"normalize", schema.normalize},
                           {"one_hot", schema.one_hot}};
  const std::string text = json.dump(2, ' ', false, SchemaJson::error_handler_t::replace) + "\n";
  // Every rank of a run makes the data set, and finds the same.
  if (std::error_code ignored; fs::is_regular_file(path, ignored) && read_file(path) == text) {
    return;
  }
  if (path.has_parent_path()) make_directories(path.parent_path());
  write_file_atomically(path, text);
}

TableSchema read_table_schema(const fs::path& path) {
  return reading<DataError>({.path = path, .kind = "schema"},
                            [&] { return schema_from(SchemaJson::parse(read_file(path))); });
}

}  // namespace lockstep::data
