#include "lockstep/data/iterable_dataset.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/data/batch_window.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sharding.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Numbers = std::vector<std::int64_t>;

// 0, 1, 2, … in each pass, plus 100 for each pass and 1000 for each epoch after the first. Shards
// get samples in turn.
class NumberStream : public IterableDataset {
 public:
  NumberStream(std::int64_t count, std::optional<std::int64_t> said) : count_(count), said_(said) {}

  std::unique_ptr<SampleSource> open(const StreamPart& part) const override {
    return share_of(std::make_unique<Source>(count_, 100 * part.pass + 1000 * (part.key.epoch - 1)),
                    part.shard);
  }
  std::optional<std::int64_t> samples() const override { return said_; }

 private:
  struct Source : SampleSource {
    Source(std::int64_t samples, std::int64_t first) : count(samples), offset(first) {}
    std::optional<Batch> next() override {
      if (at == count) return std::nullopt;
      if (at == 66) throw DataError("line 66 is damaged");
      return Batch{{"x", torch::tensor(offset + at++)}};
    }
    std::int64_t count, offset, at = 0;
  };

  std::int64_t count_;
  std::optional<std::int64_t> said_;
};

Loader stream_loader(std::int64_t count, std::optional<std::int64_t> said, LoaderOptions options) {
  return Loader(std::make_shared<NumberStream>(count, said), std::move(options));
}

Numbers numbers_of(const Batch& batch) {
  Numbers values;
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    values.push_back(batch["x"][i].item<std::int64_t>());
  }
  return values;
}

std::vector<Numbers> all_of(BatchStream stream) {
  std::vector<Numbers> batches;
  for (const Batch& batch : stream) batches.push_back(numbers_of(batch));
  return batches;
}

TEST(IterableDataset, ALoaderReadsItInItsOrder) {
  for (const std::int64_t prefetch : {0, 2}) {
    const Loader known = stream_loader(7, 7, {.batch_size = 3, .prefetch = prefetch});
    EXPECT_EQ(known.batches(), 3);
    EXPECT_EQ(known.samples(), 7);
    EXPECT_THAT(all_of(known.stream()),
                ElementsAre(Numbers{0, 1, 2}, Numbers{3, 4, 5}, Numbers{6}));
    EXPECT_THAT(all_of(known.stream({.epoch = 2, .first_batch = 1})),
                ElementsAre(Numbers{1003, 1004, 1005}, Numbers{1006}));
    EXPECT_THAT(all_of(known.stream({.step = 2})), ElementsAre(Numbers{0, 1, 2}, Numbers{6}));
  }
  const Loader dropping = stream_loader(7, 7, {.batch_size = 3, .drop_last = true});
  EXPECT_THAT(all_of(dropping.stream()), ElementsAre(Numbers{0, 1, 2}, Numbers{3, 4, 5}));
}

TEST(IterableDataset, WithoutAKnownNumberItIsReadAgain) {
  const Loader endless = stream_loader(4, std::nullopt, {.batch_size = 3, .max_batches = 4});
  EXPECT_EQ(endless.batches(), 4);
  EXPECT_EQ(endless.samples(), 12);
  const auto all = all_of(endless.stream());
  EXPECT_THAT(all, ElementsAre(Numbers{0, 1, 2}, Numbers{3, 100, 101}, Numbers{102, 103, 200},
                               Numbers{201, 202, 203}));
  EXPECT_THAT(all_of(endless.stream({.first_batch = 2})), ElementsAre(all[2], all[3]))
      << "samples that are left out count, too";
}

// What slice() says is what a stream gives, for any division among workers.
TEST(IterableDataset, ShardsHaveTheirParts) {
  for (const std::int64_t shards : {1, 2, 3}) {
    for (const std::int64_t count : {1, 5, 6, 7, 12, 13}) {
      const Loader loader = stream_loader(count, count, {.batch_size = 2});
      const ShardedEpoch epoch(loader, {}, shards);
      std::vector<Numbers> expected;
      std::int64_t seen = 0;
      for (std::int64_t k = 0; k < epoch.batches(); ++k) {
        std::int64_t in_batch = 0;
        for (std::int64_t s = 0; s < shards; ++s) {
          const SampleSlice slice = epoch.slice(k, s);
          in_batch += slice.count;
          if (slice.count == 0) continue;
          Numbers part;
          for (std::int64_t i = 0; i < slice.count; ++i) {
            part.push_back(s + (slice.first + i) * shards);
          }
          expected.push_back(part);
        }
        EXPECT_EQ(in_batch, epoch.samples(k)) << count << " of " << shards;
        seen += in_batch;
      }
      EXPECT_EQ(seen, count) << "every sample once";
      EXPECT_EQ(all_of(epoch.stream({.count = shards})), expected) << count << " of " << shards;
      std::size_t alone = 0;
      for (std::int64_t s = 0; s < shards; ++s)
        alone += all_of(epoch.stream({.first_shard = s})).size();
      EXPECT_EQ(alone, expected.size());
    }
  }
}

TEST(ShareOf, LeavesOutAsManyAsItReads) {
  struct Numbered : SampleSource {
    std::optional<Batch> next() override {
      if (at == 7) return std::nullopt;
      return Batch{{"x", torch::tensor(at++)}};
    }
    std::int64_t at = 0;
  };
  for (std::int64_t shard = 0; shard < 3; ++shard) {
    for (const std::int64_t read_before : {0, 1}) {
      const auto source = [&] {
        auto made = share_of(std::make_unique<Numbered>(), {.index = shard, .count = 3});
        for (std::int64_t i = 0; i < read_before; ++i) made->next();
        return made;
      };
      const std::int64_t left = (shard == 0 ? 3 : 2) - read_before;
      for (std::int64_t count = 0; count <= 4; ++count) {
        const auto skipping = source();
        EXPECT_EQ(skipping->skip(count), std::min(count, left)) << shard << ", " << count;
        const auto next = skipping->next();
        ASSERT_EQ(next.has_value(), count < left);
        if (next) {
          EXPECT_EQ((*next)["x"].item<std::int64_t>(), shard + 3 * (read_before + count));
        }
      }
    }
  }
}

TEST(IterableDataset, AWindowGoesOnFromEpochToEpoch) {
  const Loader loader = stream_loader(5, 5, {.batch_size = 2});
  const BatchWindow window(loader, {.begin = 1, .batches = 4, .first_batch = 1}, 1);
  auto stream = window.stream({});
  std::vector<Numbers> batches;
  for (std::int64_t k = 1; k < 4; ++k) batches.push_back(numbers_of(*stream.next()));
  EXPECT_THAT(batches, ElementsAre(Numbers{4}, Numbers{1000, 1001}, Numbers{1002, 1003}));
}

TEST(IterableDataset, IsADataSetForALook) {
  const NumberStream known(5, 5);
  EXPECT_EQ(known.size(), 5);
  EXPECT_EQ(known.sample(3)["x"].item<std::int64_t>(), 3);
  EXPECT_THROW(known.sample(5), DataError);
  EXPECT_THROW(known.sample(-1), DataError);
  EXPECT_THAT(error_text<ConfigError>([] { NumberStream(5, std::nullopt).size(); }),
              HasSubstr("max_batches"));
}

TEST(IterableDataset, ALoaderRefusesWhatAStreamCannotDo) {
  const auto error = [](LoaderOptions options, std::optional<std::int64_t> said = 5) {
    return error_text<ConfigError>([&] { stream_loader(5, said, std::move(options)); });
  };
  EXPECT_THAT(error({.shuffle = true}), HasSubstr("shuffle"));
  EXPECT_THAT(error({.sampler = std::make_shared<SequentialSampler>(5)}), HasSubstr("sampler"));
  EXPECT_THAT(error({.threads = 3}),
              AllOf(HasSubstr("threads: expected 0"), HasSubstr("got 3; set prefetch")));
  EXPECT_EQ(error({.max_batches = 2}, std::nullopt), "");
  EXPECT_THAT(error({}, -1), HasSubstr("got -1"));
  const Loader global = stream_loader(5, 5, {.global_batch_size = 3});
  EXPECT_THROW(batch_split(global, 2), ConfigError);
  EXPECT_THROW(global.order(), ConfigError);
}

TEST(IterableDataset, ALoaderWithoutALengthSaysWhatIsMissing) {
  const Loader loader = stream_loader(5, std::nullopt, {.batch_size = 2});
  EXPECT_FALSE(loader.has_length());
  EXPECT_TRUE(stream_loader(5, 5, {}).has_length());
  EXPECT_TRUE(stream_loader(5, std::nullopt, {.max_batches = 3}).has_length());
  const auto says = AllOf(HasSubstr("max_batches: expected"), HasSubstr("samples()"),
                          HasSubstr("steps_per_epoch or num_steps"));
  EXPECT_THAT(error_text<ConfigError>([&] { loader.batches(); }), says);
  EXPECT_THAT(error_text<ConfigError>([&] { loader.samples(); }), says);
  EXPECT_THAT(error_text<ConfigError>([&] { loader.stream(); }), says);
  EXPECT_THAT(error_text<ConfigError>([&] { epoch_size(loader, 2); }), says);
}

// The numbers of a part depend on its first sample, and no other part of the batch has the same.
TEST(IterableDataset, BatchesAreTransformed) {
  const auto numbers = [](const Collate& collate, std::int64_t workers, std::int64_t epoch = 1) {
    LoaderOptions options{.batch_size = 2, .collate = collate};
    options.batch_transform = [](Batch batch, SampleRandom& random) {
      batch.set("number", torch::tensor(random.uniform(), torch::kFloat64));
      return batch;
    };
    const Loader loader = stream_loader(8, 8, options);
    const ShardedEpoch sharded(loader, {.epoch = epoch}, 2);
    std::map<std::int64_t, double> by_first;  // sample of a part
    for (std::int64_t first = 0; first < 2; first += 2 / workers) {
      for (const Batch& batch : sharded.stream({.first_shard = first, .count = 2 / workers})) {
        by_first[batch["x"][0].item<std::int64_t>()] = batch["number"].item<double>();
      }
    }
    return by_first;
  };
  const auto alone = numbers({}, 1);
  ASSERT_EQ(alone.size(), 4U);
  std::set<double> distinct;
  for (const auto& [first, number] : alone) distinct.insert(number);
  EXPECT_EQ(distinct.size(), 4U);
  EXPECT_EQ(numbers({}, 2), alone);
  EXPECT_EQ(numbers(stack(), 1), alone);
  EXPECT_NE(numbers({}, 1, 2).begin()->second, alone.begin()->second);
}

// As above for data sets: the main thread draws from the same generator.
TEST(IterableDataset, ALoaderWarnsOfTheGlobalGenerator) {
  class Noise : public IterableDataset {
   public:
    explicit Noise(bool global) : global_(global) {}
    std::unique_ptr<SampleSource> open(const StreamPart& part) const override {
      return std::make_unique<Source>(part, global_);
    }

   private:
    struct Source : SampleSource {
      Source(const StreamPart& part, bool draws_globally)
          : random(part.key, part.shard.index), global(draws_globally) {}
      std::optional<Batch> next() override {
        return Batch{{"x", global ? torch::randn({2}) : torch::randn({2}, random.generator())}};
      }
      SampleRandom random;
      bool global;
    };
    bool global_;
  };
  const auto warnings = [](bool global, std::int64_t prefetch) {
    std::vector<std::string> texts;
    const WarningHandler previous =
        set_warning_handler([&](const std::string& text) { texts.push_back(text); });
    const Loader loader(std::make_shared<Noise>(global), {.prefetch = prefetch, .max_batches = 3});
    for (const Batch& batch : loader.stream()) EXPECT_EQ(batch.size(), 1);
    set_warning_handler(previous);
    return texts;
  };
  EXPECT_THAT(warnings(false, 2), IsEmpty());
  EXPECT_THAT(warnings(true, 0), IsEmpty()) << "the run seeds each batch";
  EXPECT_THAT(warnings(true, 2), ElementsAre(HasSubstr("a stream or its collate draws")));
}

TEST(IterableDataset, ErrorsOfAnyKindNameTheStream) {
  enum class Fault { kNull, kOpening, kReading, kSkipping };
  class Faulty : public IterableDataset {
   public:
    explicit Faulty(Fault fault) : fault_(fault) {}
    std::unique_ptr<SampleSource> open(const StreamPart&) const override {
      if (fault_ == Fault::kNull) return nullptr;
      if (fault_ == Fault::kOpening) throw std::runtime_error("no connection");
      return std::make_unique<Source>(fault_);
    }
    std::optional<std::int64_t> samples() const override { return 8; }

   private:
    struct Source : SampleSource {
      explicit Source(Fault its) : fault(its) {}
      std::optional<Batch> next() override {
        if (fault == Fault::kReading && at == 3) throw std::out_of_range("byte 3");
        return Batch{{"x", torch::tensor(at++)}};
      }
      std::int64_t skip(std::int64_t count) override {
        return fault == Fault::kSkipping ? count + 1 : SampleSource::skip(count);
      }
      Fault fault;
      std::int64_t at = 0;
    };
    Fault fault_;
  };
  const auto error = [](Fault fault) {
    const Loader loader(std::make_shared<Faulty>(fault), {.batch_size = 2});
    return error_text<DataError>([&] { loader.stream({.first_batch = 1}).next(); });
  };
  const auto names = [](const char* rest) {
    return AllOf(HasSubstr("Faulty, shard 0 of 1"), HasSubstr(rest));
  };
  EXPECT_THAT(error(Fault::kNull), names(": open() gave a null pointer"));
  EXPECT_THAT(error(Fault::kOpening), names(": no connection"));
  EXPECT_THAT(error(Fault::kReading), names(", sample 3: byte 3"));
  EXPECT_THAT(error(Fault::kSkipping), names("skip(2) of the source returned 3"));
  EXPECT_THAT(error_text<DataError>([] { Faulty(Fault::kNull).sample(0); }),
              HasSubstr("open() gave a null pointer"));
  EXPECT_THROW(share_of(nullptr, {}), ConfigError);
  const Collate failing = [](std::vector<Batch>&&) -> Batch { throw std::runtime_error("odd"); };
  const Loader collated = stream_loader(5, 5, {.collate = failing});
  EXPECT_THAT(error_text<DataError>([&] { collated.stream().next(); }),
              AllOf(HasSubstr("NumberStream, shard 0 of 1"), HasSubstr("odd")));
}

TEST(IterableDataset, ErrorsNameTheShardAndTheSample) {
  const auto error = [](const Loader& loader) {
    return error_text<DataError>([&] { all_of(ShardedEpoch(loader, {}, 2).stream({.count = 2})); });
  };
  EXPECT_THAT(
      error(stream_loader(5, 9, {.batch_size = 2})),
      AllOf(HasSubstr("shard 0 of 2"), HasSubstr("ended after 3 samples"), HasSubstr("says 9")));
  EXPECT_THAT(error(stream_loader(0, std::nullopt, {.max_batches = 2})), HasSubstr("no samples"));
  EXPECT_THAT(error(stream_loader(1, std::nullopt, {.max_batches = 2})),
              AllOf(HasSubstr("shard 1 of 2"), HasSubstr("no samples")));
  EXPECT_THAT(error(stream_loader(99, 99, {.batch_size = 10})),
              AllOf(HasSubstr("shard 0 of 2, sample 33"), HasSubstr("line 66 is damaged")));
}

TEST(IterableDataset, AnErrorStays) {
  const Loader loader = stream_loader(5, 9, {.batch_size = 5});
  BatchStream stream = loader.stream();
  stream.next();
  EXPECT_THROW(stream.next(), DataError);
  EXPECT_THROW(stream.next(), DataError);
}

TEST(IterableDataset, SamplesAreCollated) {
  class Growing : public IterableDataset {
    struct Source : SampleSource {
      std::optional<Batch> next() override { return Batch{{"x", torch::ones({++length})}}; }
      std::int64_t length = 0;
    };
    std::unique_ptr<SampleSource> open(const StreamPart&) const override {
      return std::make_unique<Source>();
    }
  };
  const Loader loader(std::make_shared<Growing>(),
                      {.batch_size = 3, .collate = pad(), .max_batches = 1});
  EXPECT_EQ((*loader.stream().next())["x"].sizes(), torch::IntArrayRef({3, 3}));
}

}  // namespace
}  // namespace lockstep::data
