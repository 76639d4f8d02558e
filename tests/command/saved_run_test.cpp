#include "lockstep/command/saved_run.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/checkpoint/file.h"
#include "lockstep/state/hash.h"
#include "tests/command/trained.h"

namespace lockstep::command {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SavedRuns : public testing::Trained {
 protected:
  SavedRun open(SavedRunOptions options) const {
    if (options.run.empty()) options.run = path("run");
    return open_saved_run(options);
  }
  std::string error_of(const SavedRunOptions& options) const {
    try {
      open(options);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }
  // Of the weights in a checkpoint.
  std::string hash_in(const std::string& name) const {
    return content_hash(checkpoint::load_weights(path(name)));
  }
  static std::string hash_of(const SavedRun& run) {
    return content_hash(run.evaluation.model.state());
  }
};

TEST_F(SavedRuns, TheBestCheckpointUnlessAnotherIsNamed) {
  train();
  const SavedRun best = open({});
  EXPECT_EQ(best.checkpoint, path("run/checkpoints/best.pth"));
  EXPECT_EQ(hash_of(best), hash_in("run/checkpoints/best.pth"));
  EXPECT_EQ(best.evaluation.loader_name, "valid");
  EXPECT_EQ(best.evaluation.loader.samples(), 8);
  EXPECT_TRUE(best.is_primary);
  EXPECT_EQ(hash_of(open({.checkpoint = "last"})), hash_in("run/checkpoints/last.pth"));
  EXPECT_EQ(open({.run = path("run/checkpoints/last.pth")}).checkpoint,
            path("run/checkpoints/last.pth"));
  for (const auto& entry : std::filesystem::directory_iterator(path("run/checkpoints"))) {
    const std::string name = entry.path().stem().string();
    if (!name.starts_with("epoch.")) continue;
    const std::string short_name = "epoch." + std::to_string(std::stoi(name.substr(6)));
    EXPECT_EQ(open({.checkpoint = short_name}).checkpoint, entry.path()) << short_name;
  }
  std::filesystem::remove(path("run/checkpoints/best.pth"));
  EXPECT_EQ(open({}).checkpoint, path("run/checkpoints/last.pth"));
}

// Another file is read with the categories and statistics of the training file, which need not be
// there any more.
TEST_F(SavedRuns, OtherTablesHaveTheSchemaOfTheTrainingFile) {
  std::ofstream(path("train.csv")) << "x,city,y\n1,Bonn,2\n5,Oslo,3\n3,Rome,4\n";
  std::ofstream(path("test.csv")) << "x,city,y\n5,Rome,1\n";
  const std::string options = "{_target_: CsvDataset, normalize: true, targets: y, path: ";
  train({"model=[{Linear: {out_features: 1}}]", "criterion=MSELoss", "valid_loader=null",
         "loaders={train: {batch_size: 3, dataset: " + options + path("train.csv") + "}}}"});
  std::filesystem::remove(path("train.csv"));
  std::ofstream(path("test.yml")) << "loaders: {test: {dataset: {_target_: CsvDataset, path: "
                                  << path("test.csv") << "}}}\n";
  const SavedRun run = open({.loader = "test", .configs = {path("test.yml")}});
  const Batch sample = run.evaluation.loader.dataset()->sample(0);
  EXPECT_EQ(sample["categories"].item<std::int64_t>(), 2);
  EXPECT_NEAR(sample["features"].item<double>(), 1.2247, 1e-4);
}

TEST_F(SavedRuns, ErrorsNameWhatIsMissing) {
  train();
  EXPECT_THAT(error_of({.run = path("nowhere")}), HasSubstr("nowhere"));
  EXPECT_THAT(error_of({.run = folder_.path().string()}), HasSubstr("no checkpoints"));
  EXPECT_THAT(error_of({.checkpoint = "bets"}),
              AllOf(HasSubstr("bets"), HasSubstr("did you mean 'best'")));
  EXPECT_THAT(error_of({.run = path("run/checkpoints/last.pth"), .checkpoint = "best"}),
              HasSubstr("is a checkpoint itself"));
  EXPECT_THAT(error_of({.loader = "vald"}),
              AllOf(HasSubstr("vald"), HasSubstr("did you mean 'valid'")));
  EXPECT_THAT(error_of({.overrides = {"tiny.yml"}}), HasSubstr("expected an override"));
  EXPECT_THAT(error_of({.overrides = {"loaders.valid.batchsize=2"}}), HasSubstr("batch_size"));
  EXPECT_THAT(error_of({.overrides = {"model=[{Linear: {out_features: 4}}]"}}),
              AllOf(HasSubstr("best.pth"), HasSubstr("weight")));
  std::ofstream(path("run/checkpoints/best.pth"), std::ios::binary) << "damaged";
  EXPECT_THAT(error_of({}), HasSubstr("best.pth"));
}

TEST_F(SavedRuns, AnotherConfigAndOverridesChangeTheOneOfTheCheckpoint) {
  train();
  write_file_atomically(folder_ / "test.yml", std::string_view(R"(loaders:
  test: {dataset: {_target_: Noise, samples: 5, shape: 4, classes: 3, seed: 9}, batch_size: 2}
)"));
  const SavedRun run = open({.overrides = {"loaders.test.batch_size=3"},
                             .loader = "test",
                             .configs = {path("test.yml")}});
  EXPECT_EQ(run.evaluation.loader_name, "test");
  EXPECT_EQ(run.evaluation.loader.samples(), 5);
  EXPECT_EQ(run.evaluation.loader.batches(), 2);
}

// Workers and shards of the training would need that many cores here.
TEST_F(SavedRuns, UsesOneProcessUnlessWorkersAreAskedFor) {
  train({"--workers", "2", "--shards", "4"});
  EXPECT_EQ(open({}).evaluation.engine->workers(), 1);
  EXPECT_EQ(open({.workers = 3}).evaluation.engine->workers(), 3);
  EXPECT_EQ(open({.workers = 3}).evaluation.engine->shards(), 3);
}

TEST_F(SavedRuns, HasThePrecisionOfTheTrainingUnlessAnotherIsAskedFor) {
  train({"--precision", "bf16"});
  EXPECT_EQ(open({}).evaluation.precision, Precision::kBf16);
  EXPECT_EQ(open({.precision = "fp32"}).evaluation.precision, Precision::kFp32);
  EXPECT_EQ(open({.overrides = {"precision=fp32"}}).evaluation.precision, Precision::kFp32);
}

TEST_F(SavedRuns, DataOfOtherLoadersNeedNotBeThere) {
  train();
  const SavedRun run = open({.overrides = {"loaders.train.dataset._target_=Nothing"}});
  EXPECT_EQ(run.evaluation.loader_name, "valid");
}

TEST_F(SavedRuns, OfARunWithStagesTheLastOneThatHasCheckpoints) {
  train({"--stages/one/num_epochs=1", "--stages/two/num_epochs=2"});
  EXPECT_EQ(open({}).checkpoint, path("run/two/checkpoints/best.pth"));
  EXPECT_EQ(open({.run = path("run/one")}).checkpoint, path("run/one/checkpoints/best.pth"));
  std::filesystem::remove_all(path("run/two"));
  EXPECT_EQ(open({}).checkpoint, path("run/one/checkpoints/best.pth"));
}

TEST_F(SavedRuns, AFileWithWeightsOnlyNeedsAConfig) {
  train();
  checkpoint::save(
      path("weights.pth"),
      StateDict{{"model_state_dict", checkpoint::load_weights(path("run/checkpoints/last.pth"))}});
  EXPECT_THAT(error_of({.run = path("weights.pth")}), HasSubstr("--config"));
  const SavedRun run = open({.run = path("weights.pth"), .configs = {path("tiny.yml")}});
  EXPECT_EQ(hash_of(run), hash_in("run/checkpoints/last.pth"));
}

}  // namespace
}  // namespace lockstep::command
