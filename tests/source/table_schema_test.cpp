#include "lockstep/source/table_schema.h"

#include <chrono>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "tests/data/error_text.h"
#include "tests/source/idx_files.h"
#include "tests/support/damage.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TableSchema some_schema() {
  return {.features = {{.name = "age", .mean = 1.0 / 3, .std = 0.1},
                       {.name = "city",
                        .type = ColumnType::kCategory,
                        .categories = {"Köln", "say \"hi\""},
                        .most_frequent = "Köln"}},
          .targets = {{.name = "price"}},
          .missing = Missing::kDrop,
          .missing_value = -1,
          .missing_values = {"", "NA"},
          .unknown = UnknownCategory::kCode,
          .normalize = true,
          .one_hot = true};
}

class TableSchemaTest : public testing::Test {
 protected:
  std::string error(const std::string& text) const {
    write_bytes(path_, text);
    return error_text<DataError>([&] { read_table_schema(path_); });
  }
  std::string changed(const std::string& from, const std::string& to) const {
    write_table_schema(some_schema(), path_);
    std::string text = read_file(path_);
    return text.replace(text.find(from), from.size(), to);
  }

  TemporaryDirectory folder_;
  std::filesystem::path path_ = folder_ / "schema.json";
};

TEST_F(TableSchemaTest, ComesBackToTheBit) {
  write_table_schema(some_schema(), folder_ / "new/schema.json");
  EXPECT_EQ(read_table_schema(folder_ / "new/schema.json"), some_schema());
}

TEST_F(TableSchemaTest, IsWrittenOnlyIfItDiffers) {
  write_table_schema(some_schema(), path_);
  std::filesystem::last_write_time(path_,
                                   std::filesystem::last_write_time(path_) - std::chrono::hours(1));
  const auto old = std::filesystem::last_write_time(path_);
  write_table_schema(some_schema(), path_);
  EXPECT_EQ(std::filesystem::last_write_time(path_), old);
  TableSchema other = some_schema();
  other.normalize = false;
  write_table_schema(other, path_);
  EXPECT_EQ(read_table_schema(path_), other);
}

TEST_F(TableSchemaTest, RefusesOtherFiles) {
  EXPECT_THAT(error("{}"), AllOf(HasSubstr("schema " + path_.string()),
                                 HasSubstr("expected the schema of a table")));
  EXPECT_THAT(error("not JSON"), HasSubstr(path_.string()));
  EXPECT_THAT(error_text<DataError>([&] { read_table_schema(folder_ / "none.json"); }),
              HasSubstr("none.json"));
  EXPECT_THAT(error(changed("\"version\": 1", "\"version\": 2")),
              HasSubstr("expected version 1 of the format, got 2"));
}

TEST_F(TableSchemaTest, RefusesImpossibleColumns) {
  EXPECT_THAT(error(changed("\"std\": 0.1", "\"std\": 0")), HasSubstr("column 'age': std"));
  EXPECT_THAT(error(changed("\"type\": \"number\"", "\"type\": \"numbre\"")),
              HasSubstr("type: 'numbre'; did you mean 'number'"));
  EXPECT_THAT(error(changed("\"most_frequent\": \"Köln\"", "\"most_frequent\": \"Rome\"")),
              HasSubstr("'Rome' is not one of its categories"));
  EXPECT_THAT(error(changed("\"say \\\"hi\\\"\"", "\"Köln\"")), HasSubstr("different texts"));
}

TEST_F(TableSchemaTest, SurvivesDamage) {
  write_table_schema(some_schema(), path_);
  const std::string text = read_file(path_);
  EXPECT_GT(refused_if_damaged<DataError>(text,
                                          [&](const std::string& bytes) {
                                            write_bytes(path_, bytes);
                                            read_table_schema(path_);
                                          }),
            20);
}

}  // namespace
}  // namespace lockstep::data
