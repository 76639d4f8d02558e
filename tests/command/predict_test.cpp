#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
