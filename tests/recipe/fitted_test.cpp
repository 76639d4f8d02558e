#include "lockstep/recipe/fitted.h"

#include <cmath>
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/base/warn.h"
#include "lockstep/data/scaling.h"
#include "lockstep/recipe/scaling.h"
#include "lockstep/recipe/shorthand.h"
#include "lockstep/source/csv.h"
#include "tests/recipe/support.h"
#include "tests/recipe/thousands.h"

namespace lockstep::recipe {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::node;
using ::testing::Not;
using testing::Thousands;

config::Node document_with(const std::string& loaders, int outputs = 4) {
  config::Node document = config::parse_yaml(
      fmt::format("model: [Flatten, {{Linear: {{out_features: {}}}}}]\ncriterion: MSELoss\n"
                  "optimizer: {{_target_: SGD, lr: 0.1}}\nnum_epochs: 1\n{}",
                  outputs, loaders),
      "a.yml");
  spell_out(document);
  return document;
}

// The config as a run records it.
config::Node recorded(config::Node document) {
  record_fitted(read_recipe(document), document);
  return config::parse_yaml(config::to_yaml(document), "b.yml");
}

struct ScaledOptions {
  double scale = 1000;  // the measured value
  data::Normalization normalize = data::Normalization::kNone;
  std::optional<data::Scaling> scaling = {};
};

class FittedScaling : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    using O = ScaledOptions;
    if (targets().datasets.contains("Scaled")) return;
    targets().datasets.add<O>(
        "Scaled", "For tests.",
        {{"scale", &O::scale, "what is measured"},
         {"normalize", &O::normalize, "how"},
         {"scaling", &O::scaling, "it"}},
        [](const O& o) {
          return std::make_shared<Thousands>(o.scaling ? o.scaling->features.scale[0] : o.scale);
        });
  }
  // By which each loader scales.
  static std::map<std::string, double> scales(const std::string& loaders) {
    std::map<std::string, double> found;
    const Recipe recipe = read_recipe(document_with(loaders));
    for (const auto& [name, loader] : recipe.stages.at(0).options.loaders) {
      found[name] = data::scaling_of(*loader.dataset()).features.scale[0];
    }
    return found;
  }
};

TEST_F(FittedScaling, IsWrittenNextToNormalize) {
  const config::Node first =
      recorded(document_with("loaders: {train: {dataset: {Scaled: {normalize: standard}}}}"));
  const config::Node* const dataset = first.find("loaders")->find("train")->find("dataset");
  ASSERT_TRUE(dataset->contains("scaling"));
  EXPECT_EQ(config::Value<data::Scaling>::read(*dataset->find("scaling")),
            Thousands(1000).scaling());
  EXPECT_EQ(config::to_yaml(recorded(first)), config::to_yaml(first)) << "what is there stays";
}

TEST_F(FittedScaling, IsFoundInsideOfASubsetAndInAStage) {
  const auto text = [](const std::string& loaders) {
    return config::to_yaml(recorded(document_with(loaders)));
  };
  EXPECT_THAT(text("loaders: {train: {dataset: {Subset: {count: 4, dataset: {Scaled: {}}}}}}"),
              HasSubstr("scaling:"));
  EXPECT_THAT(text("stages: {a: {loaders: {train: {dataset: {Scaled: {}}}}}}"),
              HasSubstr("scaling:"));
  EXPECT_THAT(text("loaders: {train: {dataset: {Noise: {shape: [1, 4]}}}}"),
              Not(HasSubstr("scaling:")));
}

// Two stages with data of their own keep their own statistics.
TEST_F(FittedScaling, EachStageHasItsOwn) {
  const config::Node document =
      recorded(document_with("loaders: {train: {dataset: {Scaled: {scale: 2}}}}\n"
                             "stages: {a: {}, b: {loaders: {train: {dataset: {scale: 3}}}}}"));
  const auto scale = [&](const char* stage) {
    const Evaluation evaluation = read_evaluation(document, {.loader = "train", .stage = stage});
    return data::scaling_of(*evaluation.loader.dataset()).features.scale[0];
  };
  EXPECT_EQ(scale("a"), 2);
  EXPECT_EQ(scale("b"), 3);
}

TEST_F(FittedScaling, GoesFromTheTrainLoaderToTheOthers) {
  const std::string others =
      "valid: {dataset: {Scaled: {scale: 3}}}, "
      "infer: {dataset: {Subset: {count: 2, dataset: {Scaled: {scale: 4}}}}}, "
      "test: {dataset: {Scaled: {scale: 5, normalize: none}}}";
  EXPECT_EQ(scales("loaders: {" + others + ", train: {dataset: {Scaled: {scale: 2}}}}"),
            (std::map<std::string, double>{{"valid", 2}, {"infer", 2}, {"test", 5}, {"train", 2}}));
}

TEST_F(FittedScaling, IsRefusedIfItIsNotClear) {
  const std::string train =
      "loaders: {train_a: {dataset: {Scaled: {scale: 2}}}, train_b: {dataset: {Scaled: {scale: "
      "3}}}, valid: {dataset: {Scaled: {scale: 4";
  EXPECT_THAT(
      error_of([&] { read_recipe(document_with(train + "}}}}")); }),
      HasSubstr("loaders/valid/dataset: the train loaders have 2 different values of scaling"));
  const std::string one = "{kind: standard, shift: [0.5], scale: [7]}";
  EXPECT_EQ(
      scales(train + ", scaling: {features: " + one + ", targets: " + one + "}}}}}").at("valid"),
      7);
}

// A stage that does not scale must not get the statistics of another one.
TEST_F(FittedScaling, OfAStageIsNotThatOfTheOthers) {
  const config::Node document = recorded(
      document_with("loaders: {train: {dataset: {Scaled: {scale: 2}}}}\n"
                    "stages: {a: {}, b: {loaders: {train: {dataset: {normalize: none}}}}}"));
  const auto has_scaling = [](const config::Node& in) {
    return in.find("loaders")->find("train")->find("dataset")->contains("scaling");
  };
  EXPECT_FALSE(has_scaling(document));
  EXPECT_TRUE(has_scaling(*document.find("stages")->find("a")));
  EXPECT_EQ(config::to_yaml(recorded(document)), config::to_yaml(document));
}

// Also if the run has recorded it, so that options of the train loader are no longer the same.
TEST_F(FittedScaling, IsThatOfTheSameData) {
  const config::Node document = recorded(document_with(
      "loaders: {train_a: {dataset: {Scaled: {scale: 2}}}, train_b: {dataset: {Scaled: {scale: "
      "3}}}, valid: {allow_training_data: true, dataset: {Scaled: {scale: 3}}}}"));
  const Evaluation evaluation = read_evaluation(document, {.loader = "valid"});
  EXPECT_EQ(data::scaling_of(*evaluation.loader.dataset()).features.scale[0], 3);
  EXPECT_EQ(config::to_yaml(recorded(document)), config::to_yaml(document));
}

TEST_F(FittedScaling, OfJoinedDataMustBeTheSame) {
  const auto error = [](const std::string& target, const std::string& scale) {
    return error_of([&] {
      read_recipe(document_with("loaders: {train: {dataset: {" + target +
                                ": {datasets: [{Scaled: {scale: 2}}, {Scaled: {scale: " + scale +
                                "}}]}}}}"));
    });
  };
  EXPECT_THAT(error("Concat", "3"), AllOf(HasSubstr("datasets/1: its scaling differs from that of"),
                                          HasSubstr("set scaling of both")));
  EXPECT_EQ(error("Concat", "2"), "");
  EXPECT_EQ(error("Merge", "3"), "") << "these are different inputs";
}

// Hosts that measure their own parts of the data find out before they train.
TEST_F(FittedScaling, IsComparedBetweenRanks) {
  const auto compared = [](const std::string& options) {
    const Recipe recipe = read_recipe(document_with(
        "loaders: {train: {sampler: PartitionSampler, dataset: {Partitioned: {part: 0, parts: 1, "
        "dataset: " +
        options + "}}}}"));
    std::string text;
    for (const CallbackPtr& callback : recipe.stages.at(0).options.callbacks) {
      text += callback->agreed_options();
    }
    return text;
  };
  EXPECT_THAT(compared("{Scaled: {scale: 2}}"), HasSubstr("scaling of 'train'"));
  EXPECT_EQ(compared("{Scaled: {scale: 2}}"), compared("{Scaled: {scale: 2}}"));
  EXPECT_NE(compared("{Scaled: {scale: 2}}"), compared("{Scaled: {scale: 3}}"));
  EXPECT_EQ(compared("{Noise: {shape: [1, 4]}}"), "");
}

struct ManyOptions {
  std::vector<std::string> classes = {};
  std::vector<std::string> train_classes = {};
};

// More classes than a config has room for.
class Many : public data::Dataset {
 public:
  std::int64_t size() const override { return 4; }
  Batch sample(std::int64_t) const override { return {{"features", torch::ones({2})}}; }
  std::vector<std::string> class_names() const override {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < config::kMostNodes / 4 + 1; ++i) names.push_back(std::to_string(i));
    return names;
  }
};

TEST(FittedClasses, ThatAreTooManyHaveAdviceOfTheirOwn) {
  using O = ManyOptions;
  targets().datasets.add<O>(
      "Many", "For tests.",
      {{"classes", &O::classes, "names"}, {"train_classes", &O::train_classes, "names"}},
      [](const O&) { return std::make_shared<Many>(); });
  std::vector<std::string> warnings;
  const WarningHandler before =
      set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  const auto record = [](const std::string& text) {
    config::Node dataset = node(text);
    const MadeDatasets made;
    make_dataset(dataset);
    return write_fitted(dataset, {.made = made, .is_train = true});
  };
  EXPECT_FALSE(record("{_target_: Many}"));
  EXPECT_FALSE(record("{_target_: Many}"));
  EXPECT_FALSE(record("{_target_: Many, classes: [a]}"));
  set_warning_handler(before);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("set classes in the config"), Not(HasSubstr("schema"))));
}

class FittedSchema : public ::testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  static torch::Tensor features(const data::Loader& loader) {
    return loader.dataset()->sample(0)["features"];
  }

  TemporaryDirectory folder_;
  std::string train_ = put("train.csv", "x,city,y\n1,Bonn,2\n5,Oslo,3\n3,\"say \"\"hi\"\"\",3\n");
  std::string valid_ = put("valid.csv", "x,city,y\n5,Oslo,1\n");
  std::string options_ =
      "{_target_: CsvDataset, targets: y, normalize: true, one_hot: true, path: ";
  // Of the cell 5 and of Oslo among three cities.
  torch::Tensor expected_ =
      torch::tensor({static_cast<float>((5 - 3) / std::sqrt(8.0 / 3)), 0.0F, 1.0F, 0.0F});
};

TEST_F(FittedSchema, GoesFromTheTrainLoaderToTheOthers) {
  const Recipe recipe =
      read_recipe(document_with("loaders:\n  valid: {dataset: {CsvDataset: {path: " + valid_ +
                                    "}}}\n  train: {dataset: " + options_ + train_ + "}}\n",
                                1));
  EXPECT_TRUE(features(recipe.stages.at(0).options.loaders.at("valid")).equal(expected_));
}

TEST_F(FittedSchema, TravelsWithTheConfigOfTheRun) {
  config::Node document =
      recorded(document_with("loaders: {train: {dataset: " + options_ + train_ + "}}}\n", 1));
  std::filesystem::remove(train_);
  // A loader that the run did not have, and a file without targets.
  const std::string test = put("test.csv", "city,x\nOslo,5\n");
  document.find("loaders")->set(
      "test", node("{dataset: {_target_: CsvDataset, without_targets: true, path: " + test + "}}"));
  const Evaluation evaluation = read_evaluation(document, {.loader = "test"});
  EXPECT_TRUE(features(evaluation.loader).equal(expected_));
  EXPECT_FALSE(evaluation.loader.dataset()->sample(0).contains("targets"));
}

// The file may be written again by another run.
TEST_F(FittedSchema, AFileIsReplacedByItsContent) {
  const std::string schema = (folder_ / "schema.json").string();
  const config::Node document = recorded(document_with(
      "loaders:\n  train: {dataset: " + options_ + train_ + ", save_schema: " + schema +
          "}}\n  valid: {dataset: {CsvDataset: {path: " + valid_ + ", schema: " + schema + "}}}\n",
      1));
  std::filesystem::remove(schema);
  EXPECT_TRUE(features(read_evaluation(document, {.loader = "valid"}).loader).equal(expected_));
}

// Hosts with plain numbers of their own have nothing to agree on but the columns.
TEST_F(FittedSchema, IsComparedWithoutNumbersThatAreNotUsed) {
  const std::string a = put("a.csv", "x,y\n1,2\n5,3\n"), b = put("b.csv", "x,y\n7,1\n2,9\n");
  const auto hash = [](const std::string& path, const std::string& more) {
    config::Node dataset =
        node("{CsvDataset: {path: " + path + ", targets: y, normalize: " + more + "}}");
    const MadeDatasets made;
    make_dataset(dataset);
    FittedValues values;
    values.add("train", dataset, made);
    return values.hash();
  };
  EXPECT_EQ(hash(a, "false"), hash(b, "false"));
  EXPECT_NE(hash(a, "true"), hash(b, "true"));
}

TEST_F(FittedSchema, OfJoinedTablesMustMeanTheSame) {
  const auto error = [&](const std::string& text) {
    const std::string other = put("other.csv", text), end = "}, ";
    const std::string start = "{_target_: CsvDataset, targets: y, path: ";
    return error_of([&] {
      read_recipe(document_with("loaders: {train: {dataset: {Concat: {datasets: [" + start +
                                    train_ + end + start + other + "}]}}}}\n",
                                1));
    });
  };
  EXPECT_THAT(error("x,city,y\n5,Oslo,1\n"), HasSubstr("its schema differs from that of"));
  EXPECT_EQ(error("x,city,y\n7,Bonn,1\n8,Oslo,1\n9,\"say \"\"hi\"\"\",4\n"), "");
}

TEST_F(FittedSchema, ComesBackToTheBit) {
  const auto table = data::csv_dataset(
      {.path = train_, .targets = {"y"}, .missing = data::Missing::kValue, .normalize = true});
  const config::Node again = config::parse_yaml(config::to_yaml(to_node(table->schema())), "a.yml");
  EXPECT_EQ(config::Value<data::TableSchema>::read(again), table->schema());
  config::Node broken = again;
  broken.find("features")->items().front().set("std", config::Node::scalar("0", true));
  EXPECT_THAT(error_of([&] { config::Value<data::TableSchema>::read(broken); }),
              HasSubstr("column 'x': std"));
}

}  // namespace
}  // namespace lockstep::recipe
