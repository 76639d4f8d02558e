#include "lockstep/source/text_dataset.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "tests/data/error_text.h"
#include "tests/support/damage.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int64_t> numbers_of(const torch::Tensor& tensor) {
  const auto* const first = tensor.data_ptr<std::int64_t>();
  return {first, first + tensor.numel()};
}

class Texts : public ::testing::Test {
 protected:
  std::filesystem::path text(const std::string& name, const std::string& content) const {
    write_file_atomically(folder_ / name, content);
    return folder_ / name;
  }

  TemporaryDirectory folder_;
};

TEST_F(Texts, BytesAreTokensAndTheNextOnesAreTargets) {
  const auto dataset = text_dataset({.path = text("a.txt", "abcdefgh\xff"), .window = 4});
  ASSERT_EQ(dataset->size(), 2);
  const Batch sample = dataset->sample(1);
  EXPECT_THAT(numbers_of(sample["features"]), ElementsAre('e', 'f', 'g', 'h'));
  EXPECT_THAT(numbers_of(sample["targets"]), ElementsAre('f', 'g', 'h', 255));
  EXPECT_EQ(dataset->name_of(1),
            "sample 1, from token 4 of " + (folder_ / "a.txt").string() + " on");
}

TEST_F(Texts, TheLastWindowNeedsATokenAfterIt) {
  EXPECT_EQ(text_dataset({.path = text("a", "abcdefgh"), .window = 4})->size(), 1);
  EXPECT_EQ(text_dataset({.path = text("a", "abcdefgh"), .window = 7})->size(), 1);
  EXPECT_THAT(
      error_text<DataError>([&] { text_dataset({.path = text("a", "abcdefgh"), .window = 8}); }),
      HasSubstr("it has 8 tokens, expected more than the window of 8"));
}

TEST_F(Texts, WindowsMayOverlapButNotReachIntoTheNextText) {
  const auto dataset =
      text_dataset({.paths = {text("a", "abcd"), text("short", "x"), text("b", "ABCDE")},
                    .window = 2,
                    .stride = 1});
  ASSERT_EQ(dataset->size(), 2 + 0 + 3);
  const std::vector<std::int64_t> all = {0, 1, 2, 3, 4};
  const Batch batch = dataset->gather(all, {});
  EXPECT_THAT(numbers_of(batch["features"]),
              ElementsAre('a', 'b', 'b', 'c', 'A', 'B', 'B', 'C', 'C', 'D'));
  EXPECT_THAT(numbers_of(batch["targets"]),
              ElementsAre('b', 'c', 'c', 'd', 'B', 'C', 'C', 'D', 'D', 'E'));
  EXPECT_THROW(dataset->sample(5), DataError);
}

TEST_F(Texts, WordsAreTokensOfAVocabulary) {
  const auto words = text("words", "<unk>\nthe\ncat\r\nsat\n");
  const auto dataset = text_dataset(
      {.path = text("a", "the cat\tsat\non  the mat"), .vocabulary = words, .window = 5});
  ASSERT_EQ(dataset->size(), 1);
  EXPECT_THAT(numbers_of(dataset->sample(0)["features"]), ElementsAre(1, 2, 3, 0, 1));
  EXPECT_THAT(numbers_of(dataset->sample(0)["targets"]), ElementsAre(2, 3, 0, 1, 0));
}

TEST_F(Texts, AnUnknownWordIsNamedIfThereIsNoTokenForIt) {
  const auto words = text("words", "the\ncat");
  EXPECT_THAT(
      error_text<DataError>([&] {
        text_dataset({.path = text("a", "the\ncat\nsat"), .vocabulary = words, .window = 1});
      }),
      HasSubstr("a: line 3: the word 'sat' is not in"));
}

TEST_F(Texts, AVocabularyHasEachTokenOnce) {
  const auto message = [&](const std::string& content) {
    return error_text<DataError>([&] {
      text_dataset({.path = text("a", "a b c"), .vocabulary = text("words", content), .window = 1});
    });
  };
  EXPECT_THAT(message("a\nb\na\n"), HasSubstr("words: line 3: expected a token"));
  EXPECT_THAT(message("a\n\nb\n"), HasSubstr("words: line 2"));
  EXPECT_THAT(message("a b\n"), HasSubstr("got one with a space"));
  EXPECT_THAT(message(""), HasSubstr("got none"));
}

TEST_F(Texts, AVocabularyIsBuiltFromTheMostFrequentWords) {
  const auto book = text("a", "b b a a c <unk> d d d");
  EXPECT_THAT(build_vocabulary({.texts = {book}}), ElementsAre("<unk>", "d", "a", "b", "c"));
  EXPECT_THAT(build_vocabulary({.texts = {book}, .size = 3}), ElementsAre("<unk>", "d", "a"));
  EXPECT_THAT(build_vocabulary({.texts = {book}, .least = 3}), ElementsAre("<unk>", "d"));
  build_vocabulary({.texts = {book, book}, .output = folder_ / "words"});
  EXPECT_EQ(read_file(folder_ / "words"), "<unk>\nd\na\nb\nc\n");
  EXPECT_EQ(text_dataset({.path = book, .vocabulary = folder_ / "words", .window = 8})->size(), 1);
}

TEST_F(Texts, OptionsAreChecked) {
  const auto book = text("a", "abc");
  const auto message = [](const TextDatasetOptions& options) {
    return error_text<ConfigError>([&] { text_dataset(options); });
  };
  EXPECT_THAT(message({}), HasSubstr("expected path or paths, got none"));
  EXPECT_THAT(message({.path = book, .paths = {book}}), HasSubstr("got both"));
  EXPECT_THAT(message({.path = book, .window = 0}), HasSubstr("window: expected a positive"));
  EXPECT_THAT(message({.path = book, .stride = 0}), HasSubstr("stride: expected a positive"));
  EXPECT_THAT(error_text<DataError>([&] { text_dataset({.path = folder_ / "none"}); }),
              HasSubstr("none: cannot open"));
}

TEST_F(Texts, DamagedFilesAreErrorsOrTokens) {
  const std::string story = "the cat sat on the mat", tokens = "the\ncat\nsat\non\nmat\n";
  const auto read = [](const TextDatasetOptions& options) {
    const auto dataset = text_dataset(options);
    for (std::int64_t i = 0; i < dataset->size(); ++i) dataset->sample(i);
  };
  const auto book = text("a", story), words = text("words", tokens);
  EXPECT_GT(refused_if_damaged<DataError>(story, folder_ / "b",
                                          [&](const std::filesystem::path& path) {
                                            read({.path = path, .window = 2, .stride = 1});
                                            read({.path = path, .vocabulary = words, .window = 2});
                                          }),
            10);
  EXPECT_GT(refused_if_damaged<DataError>(tokens, folder_ / "damaged words",
                                          [&](const std::filesystem::path& path) {
                                            read({.path = book, .vocabulary = path, .window = 2});
                                          }),
            10);
}

}  // namespace
}  // namespace lockstep::data
