#include "lockstep/data/loaders.h"

#include <memory>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/data/tensor_dataset.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<TensorDataset> values_to(std::int64_t n) {
  return std::make_shared<TensorDataset>(torch::arange(n), torch::arange(n));
}

Loaders two() {
  const auto train = values_to(10);
  const DatasetPtr valid = values_to(4);
  return {{"train", {train, {.batch_size = 2, .shuffle = true}}},
          {"valid", {valid, {.batch_size = 4}}}};
}

TEST(Loaders, KeepTheirOrder) {
  const Loaders loaders = two();
  EXPECT_THAT(loaders.names(), ElementsAre("train", "valid"));
  EXPECT_EQ(loaders.size(), 2U);
  EXPECT_EQ(loaders.at("train").batches(), 5);
  std::int64_t samples = 0;
  for (const auto& [name, loader] : loaders) samples += loader.samples();
  EXPECT_EQ(samples, 14);
}

TEST(Loaders, NameTheNearest) {
  EXPECT_FALSE(two().contains("vald"));
  EXPECT_THAT(error_text<ConfigError>([] { two().at("vald"); }),
              HasSubstr("no 'vald'; did you mean 'valid'?"));
  EXPECT_THAT(error_text<ConfigError>([] { Loaders().at("train"); }), HasSubstr("there are none"));
}

TEST(Loaders, SetReplacesInPlaceOrAdds) {
  Loaders loaders = two();
  loaders.set("train", {values_to(3)});
  loaders.set("infer", {values_to(1)});
  EXPECT_THAT(loaders.names(), ElementsAre("train", "valid", "infer"));
  EXPECT_EQ(loaders.at("train").samples(), 3);
}

TEST(Loaders, RefuseANameTwiceAndNone) {
  EXPECT_THAT(error_text<ConfigError>([] {
                Loaders({{"train", {values_to(3)}}, {"train", {values_to(4)}}});
              }),
              HasSubstr("'train' comes twice"));
  EXPECT_THROW(Loaders({{"", {values_to(3)}}}), ConfigError);
}

}  // namespace
}  // namespace lockstep::data
