#include "lockstep/recipe/prediction_file.h"

#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/source/npy.h"

namespace lockstep::recipe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

template <typename F>
std::string message_from(F&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::int64_t> first(std::int64_t count) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

// The bytes of a whole array.
std::string npy_bytes(const torch::Tensor& array) {
  return data::npy_header(array.scalar_type(), array.sizes().vec()) +
         std::string(static_cast<const char*>(array.data_ptr()), array.nbytes());
}

TEST(PredictionFile, OneKeyIsOneNpyFile) {
  const TemporaryDirectory folder;
  const torch::Tensor all = torch::rand({5, 2});
  PredictionFile file({.path = folder / "x.npy", .keys = {"a"}, .samples = first(5)});
  file.write({{"b", torch::ones({2})}, {"a", all.narrow(0, 0, 2)}});
  file.write({{"a", all.narrow(0, 2, 3)}});
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "it is not complete";
  EXPECT_THAT(file.finish(), ElementsAre(folder / "x.npy"));
  EXPECT_EQ(read_file(folder / "x.npy"), npy_bytes(all));
}

TEST(PredictionFile, SeveralKeysAreSeveralNpyFiles) {
  const TemporaryDirectory folder;
  const torch::Tensor labels = torch::arange(3), scores = torch::rand({3, 4});
  PredictionFile file({.path = folder / "x.npy", .samples = first(3)});
  file.write({{"labels", labels}, {"scores", scores.to(torch::kBFloat16)}});
  EXPECT_THAT(file.finish(), ElementsAre(folder / "x-labels.npy", folder / "x-scores.npy"));
  EXPECT_EQ(read_file(folder / "x-labels.npy"), npy_bytes(labels));
  EXPECT_EQ(read_file(folder / "x-scores.npy"),
            npy_bytes(scores.to(torch::kBFloat16).to(torch::kFloat32)));
}

TEST(PredictionFile, CsvHasTheIndexAndAllDigits) {
  const TemporaryDirectory folder;
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  PredictionFile file({.path = folder / "x.csv", .samples = {4, 0}});
  file.write({{"a", torch::tensor({{0.1f, 2.0f}, {1e-7f, kNaN}})},
              {"b,c", torch::tensor({true, false})},
              {"d", torch::tensor({-3, 7}).reshape({2, 1, 1})}});
  EXPECT_THAT(file.finish(), ElementsAre(folder / "x.csv"));
  EXPECT_EQ(read_file(folder / "x.csv"),
            "index,a_0,a_1,\"b,c_0\",d_0\n4,0.1,2,1,-3\n0,1e-07,nan,0,7\n");
}

TEST(PredictionFile, ErrorsNameTheKeyAndWhatWasExpected) {
  const TemporaryDirectory folder;
  const auto file = [&](const char* name) {
    return PredictionFileOptions{.path = folder / name, .samples = first(3)};
  };
  EXPECT_THAT(message_from([&] { PredictionFile x(file("x.txt")); }), HasSubstr("x.txt"));
  EXPECT_THAT(message_from([&] { PredictionFile x(file("missing/x.npy")); }),
              HasSubstr("no such folder"));
  EXPECT_THAT(message_from([&] {
                PredictionFile x({.path = folder / "x.npy", .keys = {"a", "a"}});
              }),
              HasSubstr("'a' is there twice"));
  {
    PredictionFile x(file("x.npy"));
    EXPECT_THAT(message_from([&] {
                  x.write({{"a", torch::tensor(1.0)}});
                }),
                HasSubstr("output 'a': expected one row per sample"));
  }
  PredictionFile x(file("x.csv"));
  x.write({{"a", torch::zeros({2, 3})}});
  EXPECT_THAT(message_from([&] {
                x.write({{"a", torch::zeros({1, 4})}});
              }),
              AllOf(HasSubstr("output 'a': expected Float [1, 3] for samples from 2 on"),
                    HasSubstr("padded sequences, put all samples into one batch"),
                    HasSubstr("set the loader's batch_size (or global_batch_size) to 3")));
  EXPECT_THAT(message_from([&] {
                x.write({{"a", torch::zeros({1, 3}, torch::kInt64)}});
              }),
              AllOf(HasSubstr("expected Float [1, 3]"), Not(HasSubstr("padded"))))
      << "another length would not help";
  EXPECT_THAT(message_from([&] { x.write({{"b", torch::zeros({1, 3})}}); }), HasSubstr("'a'"));
  EXPECT_THAT(message_from([&] {
                x.write({{"a", torch::zeros({2, 3})}});
              }),
              HasSubstr("each of 3 samples, got 4"));
  EXPECT_THAT(message_from([&] { x.finish(); }), HasSubstr("each of 3 samples, got 2"));
  PredictionFile y(file("y.csv"));
  EXPECT_THAT(message_from([&] {
                y.write({{"a", torch::zeros({1}, torch::kComplexFloat)}});
              }),
              HasSubstr("y.csv: output 'a': expected real numbers"));
  PredictionFile z(file("z.npy"));
  EXPECT_THAT(message_from([&] {
                z.write({{"a/b", torch::zeros({1})}, {"c", torch::zeros({1})}});
              }),
              HasSubstr("a/b"));
}

TEST(PredictionFile, RefusesOutputsThatAreNotTensors) {
  const TemporaryDirectory folder;
  Batch outputs{{"logits", torch::zeros({2, 3})}};
  outputs.set("boxes", Batch::List{torch::zeros({1, 4}), torch::zeros({2, 4})});
  EXPECT_THAT(message_from([&] {
                PredictionFile({.path = folder / "x.npy", .samples = first(2)}).write(outputs);
              }),
              HasSubstr("output 'boxes': expected a tensor, got a list of tensors"));
  PredictionFile file({.path = folder / "x.npy", .keys = {"logits"}, .samples = first(2)});
  file.write(outputs);
  EXPECT_EQ(file.finish().size(), 1u);
}

}  // namespace
}  // namespace lockstep::recipe
