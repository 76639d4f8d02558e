#include "lockstep/data/sample_error.h"

#include <new>
#include <stdexcept>

#include <gmock/gmock.h>

#include "lockstep/data/collate.h"
#include "lockstep/data/dataset.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

class Named : public Dataset {
 public:
  std::int64_t size() const override { return 50; }
  Batch sample(std::int64_t) const override { return {}; }
  std::string name_of(std::int64_t index) const override {
    if (index == 13) throw std::runtime_error("no name");
    return index < 10 ? Dataset::name_of(index) : fmt::format("sample {} ({}.jpg)", index, index);
  }
};

// The message for a sample whose reading throws `error`.
template <typename Expected, typename Thrown>
std::string named(std::int64_t index, const Thrown& error) {
  return error_text<Expected>([&] { naming_sample(Named(), index, [&] { throw error; }); });
}

TEST(NamingSample, PutsTheNameInFront) {
  EXPECT_EQ(named<DataError>(17, DataError("the file is empty")),
            "sample 17 (17.jpg): the file is empty");
  EXPECT_EQ(naming_sample(Named(), 17, [] { return 3; }), 3);
}

TEST(NamingSample, KeepsTheClassOfOurErrors) {
  EXPECT_EQ(named<ConfigError>(1, ConfigError("bad")), "sample 1: bad");
  EXPECT_EQ(named<CommError>(1, CommError("lost")), "lost");
  EXPECT_EQ(named<Error>(1, Error("odd")), "sample 1: odd");
  EXPECT_THROW(named<DataError>(1, Error("odd")), Error) << "not a DataError";
}

TEST(NamingSample, MakesOthersADataError) {
  EXPECT_EQ(named<DataError>(17, std::runtime_error("broken")), "sample 17 (17.jpg): broken");
  EXPECT_EQ(
      named<DataError>(17, std::bad_alloc()),
      "sample 17 (17.jpg): not enough memory: a smaller batch_size or fewer workers need less");
  EXPECT_THROW(naming_sample(Named(), 1, [] { throw 3; }), int);
}

TEST(NamingSample, DoesNotNameItTwice) {
  EXPECT_EQ(named<DataError>(17, DataError("sample 17 (17.jpg): empty")),
            "sample 17 (17.jpg): empty");
  EXPECT_EQ(named<DataError>(4, DataError("sample 40: empty")), "sample 4: sample 40: empty");
}

TEST(NamingSample, NeedsNoName) {
  EXPECT_EQ(named<DataError>(13, DataError("empty")), "sample 13: empty");
}

TEST(Naming, AsksForTheNameOnlyIfThereIsAnError) {
  int asked = 0;
  const auto name = [&] {
    ++asked;
    return std::string("stream");
  };
  EXPECT_EQ(naming(name, [] { return 3; }), 3);
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(error_text<DataError>([&] { naming(name, [] { throw std::out_of_range("byte 3"); }); }),
            "stream: byte 3");
}

TEST(NamingKey, NamesTheTensor) {
  EXPECT_EQ(error_text<DataError>([] { naming_key("mask", [] { throw DataError("bad"); }); }),
            "'mask': bad");
}

// A data set that reads files, of which one is damaged.
class OneDamaged : public Named {
 public:
  Batch sample(std::int64_t index) const override {
    if (index == 17) throw std::out_of_range("byte 3");
    return {{"x", torch::tensor(index)}};
  }
};

TEST(MakeBatch, NamesTheSampleThatCannotBeRead) {
  const std::vector<std::int64_t> indices = {1, 17, 2};
  for (const Collate& collate : {Collate(), stack(), pad()}) {
    EXPECT_EQ(
        error_text<DataError>([&] { make_batch(OneDamaged(), collate, {.indices = indices}); }),
        "sample 17 (17.jpg): byte 3")
        << collate.name();
  }
}

}  // namespace
}  // namespace lockstep::data
