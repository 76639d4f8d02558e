#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/checkpoint/file.h"
#include "tests/command/trained.h"

namespace lockstep::command {
namespace {

using ::testing::HasSubstr;
using testing::Ran;
using testing::run_command;

class Predict : public testing::Trained {
 protected:
  Ran predict(const std::string& output, std::vector<std::string> words = {}) const {
    words.insert(words.begin(), {"predict", path("run"), "--output", path(output)});
    return run_command(words);
  }
  std::vector<std::string> lines(const std::string& name) const {
    std::istringstream text(read_file(path(name)));
    std::vector<std::string> all;
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  }
};

TEST_F(Predict, WritesOneRowPerSample) {
  train();
  const Ran ran = predict("x.csv");
  ASSERT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(ran.output, HasSubstr("x.csv: 8 samples of loader 'valid'"));
  const auto rows = lines("x.csv");
  ASSERT_EQ(rows.size(), 9u);
  EXPECT_EQ(rows[0], "index,logits_0,logits_1,logits_2");
  for (std::size_t i = 0; i < 8; ++i) EXPECT_TRUE(rows[i + 1].starts_with(std::to_string(i) + ","));
}

// Bytes are compared: with one thread, a batch has the same bits in every process.
TEST_F(Predict, TheSameFileForAnyNumberOfWorkers) {
  train();
  const std::vector<std::string> in_batches = {
      "loaders.valid.batch_size=3", "engine={DistributedDataParallelEngine: {threads: 1}}"};
  for (const char* const ending : {".npy", ".csv"}) {
    std::string alone;
    for (const char* const workers : {"1", "2", "3"}) {
      auto words = in_batches;
      words.insert(words.end(), {"--workers", workers});
      const std::string name = std::string("x") + workers + ending;
      const Ran ran = predict(name, words);
      ASSERT_EQ(ran.code, kDone) << ran.errors;
      if (alone.empty()) alone = read_file(path(name));
      EXPECT_EQ(read_file(path(name)), alone) << name;
    }
  }
}

TEST_F(Predict, EverySampleOfALoaderThatShufflesAndDropsSome) {
  train();
  ASSERT_EQ(predict("plain.csv", {"loaders.valid.batch_size=3"}).code, kDone);
  ASSERT_EQ(predict("shuffled.csv", {"loaders.valid.batch_size=3", "loaders.valid.shuffle=true",
                                     "loaders.valid.drop_last=true"})
                .code,
            kDone);
  EXPECT_EQ(lines("shuffled.csv"), lines("plain.csv"));
}

TEST_F(Predict, EverySampleInTheOrderOfTheDataDespiteASamplerAndALimit) {
  train();
  ASSERT_EQ(predict("plain.csv", {"loaders.valid.batch_size=3"}).code, kDone);
  for (const char* const other : {"loaders.valid.sampler={RandomSampler: {seed: 3}}",
                                  "loaders.valid.max_batches=1", "limit_batches={valid: 1}"}) {
    const Ran ran = predict("other.csv", {"loaders.valid.batch_size=3", other});
    ASSERT_EQ(ran.code, kDone) << ran.errors;
    EXPECT_EQ(lines("other.csv"), lines("plain.csv")) << other;
  }
}

// Every example of the help has keys that a run has by default.
TEST_F(Predict, TheKeysOfTheHelpExist) {
  train();
  const std::string help = run_command({"predict", "--help"}).output;
  EXPECT_THAT(help, HasSubstr("--output logits.csv --keys logits"));
  EXPECT_EQ(predict("logits.csv", {"--keys", "logits"}).code, kDone);
}

// Each batch of a loader that pads has its own length, but a file has rows of one shape.
TEST_F(Predict, PaddedSequencesNeedOneBatch) {
  StateList tokens, tags;
  for (std::int64_t i = 0; i < 6; ++i) {
    tokens.push_back(torch::arange(2 + i));
    tags.push_back(torch::arange(2 + i).remainder(3));
  }
  checkpoint::save(folder_ / "s.pt", StateDict{{"tokens", tokens}, {"tags", tags}});
  write_file_atomically(
      folder_ / "tiny.yml",
      fmt::format(R"(model: {{LSTMTagger: {{vocabulary: 10, classes: 3, embedding: 4, hidden: 4}}}}
criterion: CrossEntropyLoss
optimizer: SGD
runner: {{SupervisedRunner: {{input_keys: [tokens, tokens_length], target_key: tags}}}}
loaders:
  train:
    dataset: {{TensorFile: {{path: {}, keys: {{tokens: tokens, tags: tags}}}}}}
    collate: {{pad: {{keys: [tokens, tags], values: {{tags: -100}}}}}}
    batch_size: 2
)",
                  path("s.pt")));
  train();
  const Ran several = predict("x.csv");
  EXPECT_NE(several.code, kDone);
  EXPECT_THAT(several.errors, HasSubstr("set the loader's batch_size (or global_batch_size) to 6"));
  EXPECT_FALSE(std::filesystem::exists(path("x.csv")));
  const Ran one = predict("x.csv", {"loaders.train.batch_size=6"});
  ASSERT_EQ(one.code, kDone) << one.errors;
  EXPECT_EQ(lines("x.csv").size(), 7u);
}

TEST_F(Predict, AFailureLeavesNoFile) {
  train();
  const Ran unknown = predict("x.npy", {"--keys", "logit"});
  EXPECT_EQ(unknown.code, kBadUsage);
  EXPECT_THAT(unknown.errors, HasSubstr("did you mean 'logits'"));
  EXPECT_FALSE(std::filesystem::exists(path("x.npy")));
  const Ran ending = predict("x.txt");
  EXPECT_EQ(ending.code, kBadUsage);
  EXPECT_THAT(ending.errors, HasSubstr("ends with .npy, .h5 or .csv"));
  EXPECT_EQ(predict("missing/x.npy").code, kBadUsage);
  EXPECT_EQ(run_command({"predict", path("run")}).code, kBadUsage) << "without an output";
}

}  // namespace
}  // namespace lockstep::command
