#include "lockstep/science/krr.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/science/prepared_fields.h"
#include "tests/science/support.h"

namespace lockstep::science {
namespace {

torch::Tensor matrix(const nlohmann::json& rows) {
  std::vector<torch::Tensor> made;
  for (const auto& row : rows)
    made.push_back(torch::tensor(row.get<std::vector<double>>(), torch::kFloat64));
  return torch::stack(made);
}

data::Loader loader(const torch::Tensor& x, const torch::Tensor& y) {
  return {std::make_shared<data::TensorDataset>(x, y), {.batch_size = 4}};
}

TEST(KRR, PredictsWhatNumPyDoes) {
  const auto golden = testing::golden()["krr"];
  const torch::Tensor x = matrix(golden["x"]), y = matrix(golden["y"]), q = matrix(golden["q"]);
  KRR estimator({.alpha = 0.3, .gamma = 0.5});
  estimator.train({{"train", loader(x, y)}});
  EXPECT_TRUE(
      torch::allclose(estimator.predict(loader(q, torch::zeros({5, 1}))).to(torch::kFloat64),
                      matrix(golden["predicted"]), 1e-5, 1e-5));

  const TemporaryDirectory folder;
  estimator.save(folder.path());
  KRR loaded;
  loaded.load(folder.path());
  EXPECT_TRUE(loaded.predict(loader(q, torch::zeros({5, 1})))
                  .equal(estimator.predict(loader(q, torch::zeros({5, 1})))));
}

TEST(KRR, FollowsTheLoadersOrder) {
  const torch::Tensor x = torch::rand({12, 3}), y = x.sum(1, true);
  KRR estimator({.alpha = 1e-6});
  const auto data = std::make_shared<data::TensorDataset>(x, y);
  const data::Loader shuffled(data, {.batch_size = 5, .shuffle = true, .drop_last = true});
  std::int64_t calls = 0;
  estimator.train({{"train", {data, {.batch_size = 5}}}},
                  [&](std::int64_t, const EpochMetrics&) { ++calls; });
  EXPECT_EQ(calls, 1);
  const torch::Tensor expected = data->gather(shuffled.order(), {})["targets"];
  EXPECT_TRUE(torch::allclose(estimator.predict(shuffled), expected, 1e-2, 1e-2));
  EXPECT_NEAR(estimator.history().at(1).at("train").at("loss"),
              (estimator.predict({data, {.batch_size = 4}}) - y).square().mean().item<double>(),
              1e-9);
}

TEST(KRR, PredictsInTheUnitsOfTheFile) {
  torch::manual_seed(1);
  const torch::Tensor x = 100 + torch::rand({12, 1, 3});
  const data::ChannelScaling one{
      .kind = data::Normalization::kStandard, .shift = {100}, .scale = {1}};
  const auto raw = std::make_shared<data::TensorDataset>(x, x);
  const data::Loader scaled(prepared(raw, {.scaling = {.features = one, .targets = one}}),
                            {.batch_size = 5});
  KRR estimator({.alpha = 1e-6});
  estimator.train({{"train", scaled}});
  EXPECT_TRUE(torch::allclose(estimator.predict(scaled), x.flatten(1), 1e-3));
  const TemporaryDirectory folder;
  estimator.save(folder.path());
  KRR loaded;
  loaded.load(folder.path());
  EXPECT_EQ(loaded.scaling(), estimator.scaling());
  EXPECT_TRUE(loaded.predict(scaled).equal(estimator.predict(scaled)));
  EXPECT_THROW(loaded.predict({raw, {.batch_size = 5}}), DataError) << "samples without scaling";
}

TEST(KRR, RefusesWhatCannotBe) {
  EXPECT_THROW(KRR({.alpha = 0}), ConfigError);
  EXPECT_THROW(KRR({.gamma = -1}), ConfigError);
  KRR small({.most_samples = 3});
  EXPECT_THROW(small.train({{"train", loader(torch::rand({4, 2}), torch::rand({4, 1}))}}),
               DataError);
  EXPECT_THROW(small.predict(loader(torch::rand({4, 2}), torch::rand({4, 1}))), Error);
}

TEST(KRR, ADamagedFolderIsRefusedByName) {
  const TemporaryDirectory folder;
  KRR trained(KRRConfig{});
  trained.train({{"train", loader(torch::rand({4, 2}), torch::rand({4, 1}))}});
  trained.save(folder.path());
  std::string text = read_file(folder / "params.json");
  const auto at = text.find("\"alpha\"");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 7, "\"alpba\"");
  write_file_atomically(folder / "params.json", text);
  KRR loaded(KRRConfig{});
  try {
    loaded.load(folder.path());
    FAIL() << "a folder without alpha was loaded";
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("alpha"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::science
