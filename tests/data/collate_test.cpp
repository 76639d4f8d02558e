#include "lockstep/data/collate.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sharding.h"
#include "lockstep/data/tensor_dataset.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sample i has i + 1 words, of two numbers each, as many targets, and a class.
class Sentences : public Dataset {
 public:
  std::int64_t size() const override { return 6; }
  Batch sample(std::int64_t i) const override {
    Batch sample{{"words", torch::full({i + 1, 2}, static_cast<float>(i))},
                 {"tags", torch::full({i + 1}, i, torch::kInt64)},
                 {"class", torch::tensor(i)}};
    sample.set("more", Batch{{"words", torch::full({i + 1}, 9.0F)}, {"id", torch::tensor(i)}});
    return sample;
  }
};

// An explicit type of the function would hide a mistake in its conversion to a Collate.
Batch collated(const Collate& collate, const std::vector<std::int64_t>& indices) {
  return make_batch(Sentences(), collate, {.indices = indices});
}

std::string refusal(const Collate& collate, const std::vector<std::int64_t>& indices) {
  try {
    collated(collate, indices);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Pad, ExtendsSequencesToTheLongest) {
  const Batch batch =
      collated(pad({.keys = {"words", "tags"}, .values = {{"tags", -100}}}), {1, 0, 2});
  EXPECT_EQ(batch["words"].sizes(), (torch::IntArrayRef{3, 3, 2}));
  EXPECT_TRUE(
      torch::equal(batch["words"].select(2, 0),
                   torch::tensor({{1.0F, 1.0F, 0.0F}, {0.0F, 0.0F, 0.0F}, {2.0F, 2.0F, 2.0F}})));
  EXPECT_TRUE(torch::equal(
      batch["tags"], torch::tensor({{1, 1, -100}, {0, -100, -100}, {2, 2, 2}}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(batch["words_length"], torch::tensor({2, 1, 3}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(batch["class"], torch::tensor({1, 0, 2}, torch::kInt64)));
  EXPECT_FALSE(batch.contains("words_mask"));
  EXPECT_FALSE(batch.contains("class_length"));
  EXPECT_EQ(batch.size(), 3);
}

TEST(Pad, CanAddAMaskAndLeaveOutLengths) {
  const Batch batch = collated(
      pad({.keys = {"words", "tags"}, .length_suffix = "", .mask_suffix = "_mask"}), {0, 1});
  EXPECT_TRUE(torch::equal(batch["tags_mask"], torch::tensor({{true, false}, {true, true}})));
  EXPECT_FALSE(batch.contains("words_length"));
}

TEST(Pad, TimeCanBeTheFirstDimension) {
  const Collate collate =
      pad({.keys = {"words", "tags"}, .mask_suffix = "_mask", .batch_first = false});
  const Batch batch = collated(collate, {1, 3});
  EXPECT_EQ(batch["words"].sizes(), (torch::IntArrayRef{4, 2, 2}));
  EXPECT_TRUE(
      torch::equal(batch["tags"], torch::tensor({{1, 3}, {1, 3}, {0, 3}, {0, 3}}, torch::kInt64)));
  EXPECT_EQ(batch["words_mask"].sizes(), (torch::IntArrayRef{4, 2}));
  EXPECT_EQ(batch.size(), 2) << "samples, not time";
}

TEST(Pad, WithoutKeysPadsAllThatHasADimension) {
  const Batch batch = collated(pad(), {0, 2});
  EXPECT_EQ(batch["tags"].sizes(), (torch::IntArrayRef{2, 3}));
  EXPECT_EQ(batch["class"].sizes(), (torch::IntArrayRef{2}));
}

TEST(Pad, AppliesToNestedBatches) {
  const Batch more = collated(pad({.keys = {"words", "tags"}}), {0, 2}).nested("more");
  EXPECT_TRUE(torch::equal(more["words"], torch::tensor({{9.0F, 0.0F, 0.0F}, {9.0F, 9.0F, 9.0F}})));
  EXPECT_TRUE(torch::equal(more["words_length"], torch::tensor({1, 3}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(more["id"], torch::tensor({0, 2}, torch::kInt64)));
}

TEST(Pad, WritesIntoMemoryThatFits) {
  const Collate collate = pad({.keys = {"words", "tags"}});
  const std::vector<std::int64_t> long_first = {2, 0}, short_first = {0, 2};
  const Batch old = make_batch(Sentences(), collate, {.indices = long_first});
  const void* const memory = old["words"].data_ptr();
  const Batch fresh = make_batch(Sentences(), collate, {.indices = short_first, .reuse = old});
  EXPECT_EQ(fresh["words"].data_ptr(), memory);
  EXPECT_EQ(fresh["words"][0][1].abs().sum().item<float>(), 0) << "no values of the old batch";
}

TEST(Pad, RefusesWhatItCannotPad) {
  EXPECT_THAT(refusal(pad({.keys = {"word"}}), {0}), HasSubstr("did you mean 'words'?"));
  EXPECT_THAT(refusal(pad({.keys = {"words", "class"}}), {0}),
              HasSubstr("'class' is Long [], expected a sequence"));
  EXPECT_THAT(refusal(pad({.keys = {"words"}}), {0, 1}), HasSubstr("'tags'"))
      << "the others are stacked";
  EXPECT_THAT(refusal(pad({.keys = {"tags", "words"}, .value = 0.5}), {0, 1}),
              HasSubstr("value: 'tags' has integers, got 0.5"));
  const auto error = [](const PadOptions& options) {
    return error_text<ConfigError>([&] { pad(options); });
  };
  EXPECT_THAT(error({.keys = {"words"}, .values = {{"tags", 1}}}), HasSubstr("'tags'"));
  EXPECT_THAT(error({.length_suffix = "_x", .mask_suffix = "_x"}), HasSubstr("mask_suffix"));
  EXPECT_THAT(error({.length_suffix = "", .batch_first = false}), HasSubstr("length_suffix"));
}

TEST(Pad, OnlyTheFirstDimensionMayDiffer) {
  struct Wider : Dataset {
    std::int64_t size() const override { return 9; }
    Batch sample(std::int64_t i) const override { return {{"x", torch::zeros({2, i})}}; }
  };
  const std::vector<std::int64_t> indices = {3, 8};
  EXPECT_EQ(
      error_text<DataError>(
          [&] { make_batch(Wider(), pad({.keys = {"x"}}), {.indices = indices}); }),
      "sample 8: 'x' is Float [2, 8], but that of sample 3 is Float [2, 3]; data::pad extends "
      "the first dimension only");
}

TEST(Pad, ANameThatASampleHasIsNotOverwritten) {
  struct Named : Dataset {
    std::int64_t size() const override { return 1; }
    Batch sample(std::int64_t) const override {
      return {{"x", torch::zeros({2})}, {"x_length", torch::zeros({})}};
    }
  };
  const std::vector<std::int64_t> first = {0};
  EXPECT_THAT(error_text<ConfigError>(
                  [&] { make_batch(Named(), pad({.keys = {"x"}}), {.indices = first}); }),
              HasSubstr("'x_length'"));
}

TEST(Stack, NamesTheKeyTheShapesTheSamplesAndTheRemedy) {
  EXPECT_THAT(refusal(stack(), {3, 1}),
              AllOf(HasSubstr("sample 1: 'words' is Float [2, 2], but that of sample 3 is Float "
                              "[4, 2]"),
                    HasSubstr("collate"), HasSubstr("data::pad"), HasSubstr("data::lists")));
}

TEST(Stack, StacksNestedBatches) {
  const Batch batch = collated(stack(), {2, 2});
  EXPECT_EQ(batch["words"].sizes(), (torch::IntArrayRef{2, 3, 2}));
  EXPECT_TRUE(torch::equal(batch.nested("more")["id"], torch::tensor({2, 2}, torch::kInt64)));
  const std::vector<std::int64_t> two = {1, 1};
  const Batch old = make_batch(Sentences(), stack(), {.indices = two});
  const void* const memory = old.nested("more")["words"].data_ptr();
  EXPECT_EQ(make_batch(Sentences(), stack(), {.indices = two, .reuse = old})
                .nested("more")["words"]
                .data_ptr(),
            memory);
}

TEST(Stack, SamplesMustHaveValuesOfTheSameKind) {
  struct Mixed : Dataset {
    std::int64_t size() const override { return 3; }
    Batch sample(std::int64_t i) const override {
      Batch sample{{"x", torch::zeros({2})}};
      if (i == 1) sample.set("x", Batch{{"y", torch::zeros({})}});
      if (i == 2) sample.set("x", std::vector<torch::Tensor>{torch::zeros({})});
      return sample;
    }
  };
  const auto error = [](const std::vector<std::int64_t>& indices) {
    return error_text<DataError>([&] { make_batch(Mixed(), stack(), {.indices = indices}); });
  };
  EXPECT_THAT(error({0, 1}), HasSubstr("sample 1: 'x' is of another kind than in sample 0"));
  EXPECT_THAT(error({0, 2}), HasSubstr("sample 2: 'x' is a list of tensors"));
}

TEST(Lists, KeepTensorsSeparateAndStackTheRest) {
  const Batch batch = collated(lists({"words", "tags"}), {0, 4});
  ASSERT_EQ(batch.list("words").size(), 2U);
  EXPECT_EQ(batch.list("words")[1].sizes(), (torch::IntArrayRef{5, 2}));
  EXPECT_TRUE(torch::equal(batch["class"], torch::tensor({0, 4}, torch::kInt64)));
  EXPECT_EQ(batch.nested("more").list("words").size(), 2U);
  EXPECT_EQ(batch.size(), 2);
  EXPECT_THAT(refusal(lists({"wrods"}), {0}), HasSubstr("did you mean 'words'?"));
  EXPECT_THROW(lists({}), ConfigError);
}

TEST(Collate, CanBeAFunction) {
  const Collate collate = [](std::vector<Batch>&& samples) {
    return Batch{{"count", torch::full({2}, static_cast<std::int64_t>(samples.size()))}};
  };
  EXPECT_TRUE(collate);
  EXPECT_EQ(collated(collate, {0, 1, 2})["count"][0].item<std::int64_t>(), 3);
  EXPECT_TRUE(collated(collate, {}).empty()) << "it is not called without samples";
  EXPECT_THROW(Collate(Collate::Function()), ConfigError);
}

TEST(Collate, HasANameThatSaysWhatItDoes) {
  EXPECT_EQ(Collate().name(), "none");
  EXPECT_FALSE(Collate());
  EXPECT_EQ(stack().name(), "stack");
  EXPECT_EQ(lists({"a", "b"}).name(), "lists(a, b)");
  EXPECT_EQ(pad({.keys = {"a"}, .values = {{"a", -100}}, .batch_first = false}).name(),
            "pad(a; value 0, a -100, length _length, time first)");
  EXPECT_NE(pad().name(), pad({.mask_suffix = "_mask"}).name());
  EXPECT_EQ(Collate([](std::vector<Batch>&&) { return Batch(); }).name(), "a function");
}

// A data set that gathers in one pass, and marks the batches that it made so.
class Gathered : public Dataset {
 public:
  std::int64_t size() const override { return 4; }
  Batch sample(std::int64_t index) const override { return {{"number", torch::tensor(index)}}; }
  Batch gather(std::span<const std::int64_t> indices, Batch reuse) const override {
    Batch batch = Dataset::gather(indices, std::move(reuse));
    batch.set("gathered", torch::ones({}));
    return batch;
  }
};

TEST(Collate, ReplacesGatherOnlyIfItIsGiven) {
  const auto data = std::make_shared<Gathered>();
  const auto first = [&](const LoaderOptions& options) {
    return *Loader(data, options).stream().next();
  };
  EXPECT_TRUE(first({.batch_size = 2}).contains("gathered"));
  EXPECT_FALSE(first({.batch_size = 2, .collate = stack()}).contains("gathered"));
}

// The batch transform gets numbers that depend on the first sample of a part and on the epoch.
TEST(BatchTransform, FollowsTheGatherAndTheCollate) {
  const BatchTransform add_numbers = [](Batch batch, SampleRandom& random) {
    batch.set("number", torch::tensor({random.uniform()}, torch::kFloat64));
    return batch;
  };
  const auto number = [&](LoaderOptions options, std::int64_t epoch) {
    options.batch_size = 2;
    options.batch_transform = add_numbers;
    const Loader loader(std::make_shared<Gathered>(), options);
    return (*loader.stream({.epoch = epoch}).next())["number"].item<double>();
  };
  const double first = number({}, 1);
  EXPECT_EQ(number({.collate = stack()}, 1), first);
  EXPECT_EQ(number({.prefetch = 2}, 1), first);
  EXPECT_NE(number({}, 2), first);
  EXPECT_NE(number({.seed = 9}, 1), first);
  // They are not the numbers that the first sample is changed with.
  EXPECT_NE(SampleRandom({}, 0).uniform(), first);
}

TEST(BatchTransform, FollowsThatOfTheCollate) {
  const auto add = [](const char* key) {
    return [key](Batch batch, SampleRandom&) {
      batch.set(key, torch::tensor(static_cast<std::int64_t>(batch.keys().size())));
      return batch;
    };
  };
  const LoaderOptions options{.batch_size = 2,
                              .collate = stack().followed_by(add("first")),
                              .batch_transform = add("second")};
  const Loader loader(std::make_shared<Gathered>(), options);
  const Loader copy(loader.dataset(), loader.options());
  for (const Loader& each : {loader, copy}) {
    const Batch batch = *each.stream().next();
    EXPECT_EQ(batch["second"].item<std::int64_t>(), batch["first"].item<std::int64_t>() + 1);
    EXPECT_EQ(batch.keys().size(),
              static_cast<std::size_t>(batch["first"].item<std::int64_t>()) + 2)
        << "each once";
  }
}

TEST(Collate, EachShardIsPaddedToItsOwnLongestSequence) {
  const Loader loader(std::make_shared<Sentences>(),
                      {.batch_size = 2, .collate = pad({.keys = {"words", "tags"}})});
  std::vector<std::int64_t> times;
  for (const std::int64_t shard : {0, 1, 2}) {
    for (Batch& batch : ShardedEpoch(loader, {}, 3).stream({.first_shard = shard})) {
      times.push_back(batch["words"].size(1));
    }
  }
  EXPECT_THAT(times, ElementsAre(2, 4, 6));
  for (Batch& batch : loader.stream()) {
    EXPECT_EQ(batch["words"].size(1), batch["words_length"].max().item<std::int64_t>());
  }
}

}  // namespace
}  // namespace lockstep::data
