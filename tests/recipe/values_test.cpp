#include "lockstep/recipe/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

TEST(Values, AMetricHasItsLoaderBeforeTheFirstSlash) {
  const auto key = config::Value<MetricKey>::read(node("valid/f1/_macro"));
  EXPECT_EQ(key.loader, "valid");
  EXPECT_EQ(key.metric, "f1/_macro");
  EXPECT_THAT(error_of([] { config::Value<MetricKey>::read(node("loss")); }),
              HasSubstr("expected loader/metric"));
}

TEST(Values, HParamsKeepTheirTypes) {
  const auto hparams = config::Value<HParams>::read(node("{a: 1, b: 1.5, c: true, d: '1', e: x}"));
  EXPECT_TRUE(std::holds_alternative<std::int64_t>(hparams.at("a")));
  EXPECT_TRUE(std::holds_alternative<double>(hparams.at("b")));
  EXPECT_TRUE(std::holds_alternative<bool>(hparams.at("c")));
  EXPECT_EQ(std::get<std::string>(hparams.at("d")), "1");
  EXPECT_EQ(std::get<std::string>(hparams.at("e")), "x");
}

TEST(Values, Devices) {
  EXPECT_EQ(config::Value<torch::Device>::read(node("cpu")), torch::Device(torch::kCPU));
  EXPECT_EQ(config::Value<torch::Device>::read(node("'cuda:1'")).index(), 1);
  EXPECT_THAT(error_of([] { config::Value<torch::Device>::read(node("gpu")); }),
              HasSubstr("expected a device, such as cpu or cuda:0, got 'gpu'"));
}

TEST(Values, AListOfTransformsIsAChain) {
  const auto chain =
      config::Value<data::TransformPtr>::read(node("[ToTensor, {Normalize: {mean: 0.5, std: 2}}]"));
  const auto out = chain.apply(torch::full({1, 2, 2}, 255, torch::kUInt8));
  EXPECT_EQ(out.sizes(), torch::IntArrayRef({1, 1, 2, 2}));
  EXPECT_FLOAT_EQ(out[0][0][0][0].item<float>(), 0.25f);
}

TEST(Values, PartsToRestoreAreAMapping) {
  const auto parts = [](const std::string& text) {
    return config::Value<RestoreOptions>::read(node(text));
  };
  EXPECT_EQ(parts("{optimizer: a.pth, criterion: b.pth}").describe(), "optimizer, criterion");
  EXPECT_EQ(parts("{scheduler: c.pth}").scheduler, "c.pth");
  EXPECT_FALSE(parts("{}"));
  EXPECT_THAT(error_of([&] { parts("{optimiser: a.pth}"); }), HasSubstr("optimizer"));
}

TEST(Values, WeightsAreAPathOrAMapping) {
  const auto weights = [](const std::string& text) {
    return config::Value<Weights>::read(node(text));
  };
  EXPECT_EQ(weights("a.pth").path(), "a.pth");
  const Weights mapped = weights(
      "{path: b.pth, strict: false, remove_prefix: backbone., rename: {b.*: c.*, a.*: d.*}, "
      "add_prefix: net., skip: fc.*}");
  EXPECT_EQ(mapped.path(), "b.pth");
  EXPECT_EQ(mapped.describe(),
            "a file (strict=false, remove_prefix=backbone., rename=[b.* -> c.*, a.* -> d.*], "
            "add_prefix=net., skip=[fc.*])");
  EXPECT_THAT(error_of([&] { weights("{strict: false}"); }), HasSubstr("path is missing"));
  EXPECT_THAT(error_of([&] { weights("{path: b.pth, rename: {a: b.*}}"); }),
              HasSubstr("rename: expected at most 0 * in 'b.*'"));
  const auto several =
      config::Value<Named<Weights>>::read(node("{a: {path: b.pth, strict: false}, b: c.pth}"));
  EXPECT_FALSE(several["a"].options().strict);
  EXPECT_EQ(several["b"].path(), "c.pth");
}

}  // namespace
}  // namespace lockstep::recipe
