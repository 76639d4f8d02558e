#include "lockstep/source/csv.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "tests/data/error_text.h"
#include "tests/source/idx_files.h"
#include "tests/support/damage.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kHouses =
    "age,city,rooms,price\n"
    "10,Oslo,3,1.5\n"
    "20,Bonn,4,2.5\n"
    "30,Oslo,5,3.5\n";

class CsvTest : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& text, const std::string& name = "a.csv") const {
    write_bytes(folder_ / name, text);
    return folder_ / name;
  }

  template <typename E = DataError>
  static std::string error(const CsvOptions& options) {
    return error_text<E>([&] { csv_dataset(options); });
  }

  static torch::Tensor column(const Dataset& dataset, const std::string& key) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(dataset.size()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
    return dataset.gather(all, {})[key];
  }

  static void expect_floats(const torch::Tensor& found,
                            const std::vector<std::vector<float>>& rows) {
    std::vector<torch::Tensor> expected;
    for (const auto& row : rows) expected.push_back(torch::tensor(row));
    EXPECT_TRUE(torch::equal(found, torch::stack(expected))) << found;
  }

  static void expect_codes(const torch::Tensor& found, const std::vector<std::int64_t>& codes) {
    EXPECT_TRUE(torch::equal(found.flatten(), torch::tensor(codes, torch::kInt64))) << found;
  }

  TemporaryDirectory folder_;
};

TEST_F(CsvTest, ReadsNumbersCategoriesAndTargetsByName) {
  const auto houses = csv_dataset(
      {.path = file(kHouses), .features = {"rooms", "city", "age"}, .targets = {"price"}});
  ASSERT_EQ(houses->size(), 3);
  expect_floats(column(*houses, "features"), {{3, 10}, {4, 20}, {5, 30}});
  EXPECT_EQ(column(*houses, "categories").sizes(), (torch::IntArrayRef{3, 1}));
  expect_codes(column(*houses, "categories"), {1, 0, 1});  // Bonn, Oslo
  expect_floats(column(*houses, "targets"), {{1.5}, {2.5}, {3.5}});
  EXPECT_EQ(column(*houses, "features").scalar_type(), torch::kFloat32);
  EXPECT_THAT(houses->schema().features[1].categories, ElementsAre("Bonn", "Oslo"));
}

TEST_F(CsvTest, TakesAllOtherColumnsAsFeatures) {
  const auto houses = csv_dataset({.path = file(kHouses), .targets = {"price", "rooms"}});
  EXPECT_EQ(houses->sample(0)["features"].sizes(), (torch::IntArrayRef{1}));
  EXPECT_EQ(houses->sample(0)["categories"].sizes(), (torch::IntArrayRef{1}));
  expect_floats(column(*houses, "targets"), {{1.5, 3}, {2.5, 4}, {3.5, 5}});
}

TEST_F(CsvTest, ATargetOfTextIsAClass) {
  const auto houses =
      csv_dataset({.path = file(kHouses), .features = {"age"}, .targets = {"city"}});
  EXPECT_EQ(column(*houses, "targets").sizes(), (torch::IntArrayRef{3}));
  expect_codes(column(*houses, "targets"), {1, 0, 1});
}

TEST_F(CsvTest, NumbersCanBeClassesInTheirOrder) {
  const auto data = csv_dataset({.path = file("x,digit\n1,10\n2,9\n3,2\n"),
                                 .targets = {"digit"},
                                 .types = {{"digit", ColumnType::kCategory}}});
  EXPECT_THAT(data->schema().targets[0].categories, ElementsAre("2", "9", "10"));
  expect_codes(column(*data, "targets"), {2, 1, 0});
}

TEST_F(CsvTest, CategoriesCanBeGivenInTheirOrder) {
  const CsvOptions options{.path = file("size\nS\nL\nM\n"),
                           .categories = {{"size", {"S", "M", "L"}}}};
  expect_codes(column(*csv_dataset(options), "categories"), {0, 2, 1});
  CsvOptions fewer = options;
  fewer.categories = {{"size", {"S", "M"}}};
  EXPECT_THAT(error(fewer), HasSubstr("line 3: column 'size': 'L' is not one of its 2 categories"));
  fewer.unknown = UnknownCategory::kCode;
  expect_codes(column(*csv_dataset(fewer), "categories"), {0, 2, 1});
}

TEST_F(CsvTest, OneHotPutsCategoriesInTheirPlace) {
  const auto houses =
      csv_dataset({.path = file(kHouses), .features = {"age", "city", "rooms"}, .one_hot = true});
  expect_floats(column(*houses, "features"), {{10, 0, 1, 3}, {20, 1, 0, 4}, {30, 0, 1, 5}});
  EXPECT_FALSE(houses->sample(0).contains("categories"));
  EXPECT_FALSE(houses->sample(0).contains("targets"));
}

TEST_F(CsvTest, ReadsTabsPackedFilesMarksAndOtherSeparators) {
  expect_floats(column(*csv_dataset({.path = file("a\tb\n1\t2\n", "a.tsv")}), "features"),
                {{1, 2}});
  expect_floats(column(*csv_dataset({.path = file(gzip("a\tb\n1\t2\n"), "a.tsv.gz")}), "features"),
                {{1, 2}});
  const auto marked = csv_dataset({.path = file("\xef\xbb\xbf"
                                                "a;b\r\n1;2\r\n"),
                                   .features = {"a"},
                                   .separator = ";"});
  expect_floats(column(*marked, "features"), {{1}});
}

TEST_F(CsvTest, ColumnsHaveNumbersWithoutAHeader) {
  const auto data = csv_dataset(
      {.path = file("1,2,3\n4,5,6\n"), .features = {"2", "0"}, .targets = {"1"}, .header = false});
  expect_floats(column(*data, "features"), {{3, 1}, {6, 4}});
  expect_floats(column(*data, "targets"), {{2}, {5}});
}

TEST_F(CsvTest, ReadsNumbersAsTheyAreWritten) {
  const auto data = csv_dataset({.path = file("x\n 1.5 \n+2\n-3e-2\n1e-400\n\"7\"\n.5\n")});
  expect_floats(column(*data, "features"), {{1.5}, {2}, {-3e-2F}, {0}, {7}, {0.5}});
}

TEST_F(CsvTest, NormalisesWithTheStatisticsOfTheTrainingFile) {
  const auto train = csv_dataset({.path = file("x,same\n1,7\n3,7\n"), .normalize = true});
  expect_floats(column(*train, "features"), {{-1, 0}, {1, 0}});
  EXPECT_EQ(train->schema().features[0].mean, 2);
  EXPECT_EQ(train->schema().features[0].std, 1);
  const auto valid =
      csv_dataset({.path = file("same,x\n8,6\n", "b.csv"), .schema = train->schema()});
  expect_floats(column(*valid, "features"), {{4, 1}});
}

TEST_F(CsvTest, ASecondFileHasTheCategoriesOfTheFirst) {
  const auto train =
      csv_dataset({.path = file(kHouses), .features = {"city"}, .targets = {"price"}});
  const std::string other = "city,price\nOslo,1\n";
  const auto valid = csv_dataset({.path = file(other, "b.csv"), .schema = train->schema()});
  expect_codes(column(*valid, "categories"), {1});
  EXPECT_THAT(
      error({.path = file("city,price\nOslo,1\nOsol,2\n", "b.csv"), .schema = train->schema()}),
      AllOf(HasSubstr("b.csv: line 3: column 'city': 'Osol' is not one of its 2"),
            HasSubstr("did you mean 'Oslo'")));
  TableSchema tolerant = train->schema();
  tolerant.unknown = UnknownCategory::kCode;
  const auto unknown =
      csv_dataset({.path = file("city,price\nRome,1\n", "b.csv"), .schema = tolerant});
  expect_codes(column(*unknown, "categories"), {2});
  tolerant.one_hot = true;
  const auto zeros = csv_dataset({.path = folder_ / "b.csv", .schema = tolerant});
  expect_floats(column(*zeros, "features"), {{0, 0}});
}

TEST_F(CsvTest, AnUnknownClassIsAlwaysAnError) {
  TableSchema schema =
      csv_dataset({.path = file(kHouses), .features = {"age"}, .targets = {"city"}})->schema();
  schema.unknown = UnknownCategory::kCode;
  EXPECT_THAT(error({.path = file("age,city\n1,Rome\n", "b.csv"), .schema = schema}),
              HasSubstr("'Rome' is not one of its 2 categories"));
}

TEST_F(CsvTest, KeepsTheSchemaInAFile) {
  const auto train = csv_dataset({.path = file(kHouses),
                                  .targets = {"price"},
                                  .normalize = true,
                                  .save_schema = folder_ / "logs/schema.json"});
  const TableSchema schema = read_table_schema(folder_ / "logs/schema.json");
  EXPECT_EQ(schema, train->schema());
  const auto again = csv_dataset({.path = folder_ / "a.csv", .schema = schema});
  EXPECT_TRUE(torch::equal(column(*again, "features"), column(*train, "features")));
}

TEST_F(CsvTest, OptionsMustAgreeWithTheSchema) {
  const TableSchema schema =
      csv_dataset({.path = file(kHouses), .features = {"age"}, .normalize = true})->schema();
  EXPECT_EQ(
      csv_dataset(
          {.path = folder_ / "a.csv", .features = {"age"}, .normalize = true, .schema = schema})
          ->size(),
      3);
  EXPECT_THAT(
      error<ConfigError>({.path = folder_ / "a.csv", .features = {"rooms"}, .schema = schema}),
      HasSubstr("features: the schema says something else"));
  EXPECT_THAT(error<ConfigError>({.path = folder_ / "a.csv", .one_hot = true, .schema = schema}),
              HasSubstr("one_hot: the schema says something else"));
}

TEST_F(CsvTest, AFileMayHaveMoreGapsThanTheOneOfTheSchema) {
  const TableSchema schema =
      csv_dataset({.path = file("age,city\n1,Bonn\n3,Ulm\n"), .features = {"age", "city"}})
          ->schema();
  const std::filesystem::path path = file("age,city\n7,Bonn\n,Ulm\n9,Kiel\n", "b.csv");
  const auto read = [&](Missing missing) {
    return csv_dataset(
        {.path = path, .missing = missing, .unknown = UnknownCategory::kCode, .schema = schema});
  };
  EXPECT_EQ(read(Missing::kDrop)->size(), 2);
  EXPECT_EQ(read(Missing::kMean)->sample(1)["features"][0].item<double>(), 2);
  EXPECT_EQ(read(Missing::kMean)->sample(2)["categories"][0].item<std::int64_t>(), 2)
      << "a code of its own";
  EXPECT_THAT(error<ConfigError>({.path = path, .missing = Missing::kValue, .schema = schema}),
              HasSubstr("missing: the schema says something else"));
}

TEST_F(CsvTest, TargetsCanBeLeftOutForPredictions) {
  const TableSchema schema =
      csv_dataset({.path = file(kHouses), .features = {"age"}, .targets = {"price"}})->schema();
  const std::filesystem::path path = file("age\n1\n", "b.csv");
  EXPECT_THAT(error<ConfigError>({.path = path, .schema = schema}),
              HasSubstr("targets: " + path.string() + " has no column 'price'"));
  const auto rows = csv_dataset({.path = path, .schema = schema, .without_targets = true});
  EXPECT_FALSE(rows->sample(0).contains("targets"));
}

class MissingValues : public CsvTest {
 protected:
  CsvOptions options(Missing missing) const {
    return {.path = file("x,city,y\n1,Bonn,1\nNA,Oslo,2\n3,,3\n5,Bonn,4\n"),
            .targets = {"y"},
            .missing = missing,
            .missing_value = -1};
  }
};

TEST_F(MissingValues, AreAnErrorByDefault) {
  EXPECT_THAT(error(options(Missing::kError)),
              AllOf(HasSubstr("line 3: column 'x': the value is missing, or not finite (1 of 4"),
                    HasSubstr("set missing to mean, value or drop")));
}

TEST_F(MissingValues, BecomeTheMeanAndTheMostFrequentCategory) {
  const auto data = csv_dataset(options(Missing::kMean));
  expect_floats(column(*data, "features"), {{1}, {3}, {3}, {5}});
  expect_codes(column(*data, "categories"), {0, 1, 0, 0});
  // Those of the training file.
  const auto other =
      csv_dataset({.path = file("x,city,y\nNA,NA,1\n", "b.csv"), .schema = data->schema()});
  expect_floats(column(*other, "features"), {{3}});
  expect_codes(column(*other, "categories"), {0});
}

TEST_F(MissingValues, BecomeAValueAndACategory) {
  const auto data = csv_dataset(options(Missing::kValue));
  expect_floats(column(*data, "features"), {{1}, {-1}, {3}, {5}});
  EXPECT_THAT(data->schema().features[1].categories, ElementsAre("", "Bonn", "Oslo"));
  expect_codes(column(*data, "categories"), {1, 2, 0, 1});
}

// Also if the training file has none. Codes of its categories stay as they are.
TEST_F(MissingValues, OfAnotherFileHaveACategory) {
  for (const bool one_hot : {false, true}) {
    const auto data = csv_dataset({.path = file("x,city\n1,Oslo\n2,Bonn\n"),
                                   .missing = Missing::kValue,
                                   .missing_value = -1,
                                   .one_hot = one_hot});
    EXPECT_THAT(data->schema().features[1].categories, ElementsAre("Bonn", "Oslo", ""));
    const auto other =
        csv_dataset({.path = file("x,city\n,\n3,Oslo\n", "b.csv"), .schema = data->schema()});
    if (one_hot) {
      expect_floats(column(*other, "features"), {{-1, 0, 0, 1}, {3, 0, 1, 0}});
    } else {
      expect_floats(column(*other, "features"), {{-1}, {3}});
      expect_codes(column(*other, "categories"), {2, 1});
    }
  }
}

TEST_F(MissingValues, AreLeftOutWithTheirRows) {
  const auto data = csv_dataset(options(Missing::kDrop));
  expect_floats(column(*data, "features"), {{1}, {5}});
  expect_floats(column(*data, "targets"), {{1}, {4}});
  EXPECT_EQ(data->schema().features[0].mean, 3);
  EXPECT_THAT(data->schema().features[1].categories, ElementsAre("Bonn"));
  EXPECT_THAT(data->name_of(1), HasSubstr("a.csv, line 5"));
}

TEST_F(MissingValues, AreAlsoNumbersThatAreNotFinite) {
  for (const char* const cell : {"nan", "inf", "-Infinity", "1e39", "1e999"}) {
    EXPECT_THAT(error({.path = file(std::string("x\n1\n") + cell + "\n"), .missing_values = {}}),
                HasSubstr("line 3: column 'x': the value is missing, or not finite"))
        << cell;
  }
}

TEST_F(MissingValues, CanBeNumbersToo) {
  const auto data = csv_dataset(
      {.path = file("x\n1\n-999\n3\n"), .missing = Missing::kMean, .missing_values = {"-999"}});
  expect_floats(column(*data, "features"), {{1}, {2}, {3}});
}

TEST_F(MissingValues, AreNeverInventedForTargets) {
  EXPECT_THAT(error({.path = file("x,y\n1,\n"), .targets = {"y"}, .missing = Missing::kMean}),
              AllOf(HasSubstr("line 2: column 'y'"), HasSubstr("a target; set missing to drop")));
}

TEST_F(MissingValues, AreNotAllOfAColumn) {
  EXPECT_THAT(error({.path = file("x\nNA\nNA\n"), .missing = Missing::kMean}),
              HasSubstr("column 'x': all values are missing"));
  EXPECT_THAT(error({.path = file("x\nNA\nNA\n"), .missing = Missing::kDrop}),
              HasSubstr("all 2 rows have missing values"));
}

TEST_F(CsvTest, SuggestsTheNameOfAColumn) {
  EXPECT_THAT(error<ConfigError>({.path = file(kHouses), .features = {"room"}}),
              AllOf(HasSubstr("features: "), HasSubstr("a.csv has no column 'room'"),
                    HasSubstr("did you mean 'rooms'")));
  EXPECT_THAT(
      error<ConfigError>({.path = file(kHouses), .types = {{"citty", ColumnType::kNumber}}}),
      AllOf(HasSubstr("types: 'citty' is not a feature or target"), HasSubstr("'city'")));
  EXPECT_THAT(error<ConfigError>({.path = file(",a\n0,1\n")}), HasSubstr("has no name"));
  EXPECT_THAT(error<ConfigError>({.path = file("a,a\n1,2\n")}), HasSubstr("'a' is used twice"));
  EXPECT_THAT(error<ConfigError>({.path = file("a,b,a\n1,2,3\n"), .features = {"a"}}),
              HasSubstr("two columns 'a'"));
}

TEST_F(CsvTest, NamesTheLineOfAMistake) {
  EXPECT_THAT(error({.path = file("a,b\n1,2\n3\n")}),
              HasSubstr("a.csv: line 3: 1 cells, expected 2"));
  EXPECT_THAT(error({.path = file("a\n1\nx\n"), .types = {{"a", ColumnType::kNumber}}}),
              HasSubstr("line 3: column 'a': expected a number, got 'x'"));
  EXPECT_THAT(error({.path = file("a\nB\xff\n")}), HasSubstr("line 2: column 'a'"));
  EXPECT_THAT(error({.path = file("\xff\xfe"
                                  "a")}),
              HasSubstr("UTF-16"));
  EXPECT_THAT(error({.path = file("")}), HasSubstr("the file is empty"));
  EXPECT_THAT(error({.path = file("a,b\n")}), HasSubstr("no rows of values"));
  EXPECT_THAT(error({.path = folder_ / "none.csv"}), HasSubstr("none.csv"));
}

TEST_F(CsvTest, ATypingErrorDoesNotMakeACategory) {
  EXPECT_THAT(error({.path = file("a\n1\n2\n3o\n4\n")}),
              AllOf(HasSubstr("line 4: column 'a': '3o' is not a number, but 3 of 4 cells"),
                    HasSubstr("say in types")));
}

TEST_F(CsvTest, RefusesOptionsThatCannotBe) {
  EXPECT_THAT(error<ConfigError>({.path = file(kHouses), .separator = "ab"}),
              HasSubstr("separator: expected one character"));
  EXPECT_THAT(error<ConfigError>({.path = file(kHouses), .separator = "\""}),
              HasSubstr("separator"));
  EXPECT_THAT(error<ConfigError>({.path = file(kHouses), .without_targets = true}),
              HasSubstr("without_targets"));
  EXPECT_THAT(error({.path = file(kHouses), .features = {"age"}, .targets = {"price", "city"}}),
              HasSubstr("'price' and 'city' are numbers and categories"));
}

TEST_F(CsvTest, SurvivesDamage) {
  const std::string quoted = "a,\"b \"\"c\"\"\",d\n1,\"x,\ny\",2.5\n2,z,\"3\"\n3,\"q\",4\n";
  for (const std::string& text : {kHouses, quoted, gzip(kHouses)}) {
    refused_if_damaged<Error>(text, [&](const std::string& bytes) {
      const auto read = csv_dataset({.path = file(bytes), .normalize = true, .one_hot = true});
      const torch::Tensor features = column(*read, "features");
      EXPECT_TRUE(torch::isfinite(features).all().item<bool>());
    });
  }
  EXPECT_GT(refused_if_damaged<Error>(
                quoted, [&](const std::string& bytes) { csv_dataset({.path = file(bytes)}); }),
            10);
}

}  // namespace
}  // namespace lockstep::data
