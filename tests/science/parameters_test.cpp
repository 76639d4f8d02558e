#include "lockstep/science/parameters.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::science {
namespace {

TEST(Parameters, ComeBackAsTheyWere) {
  const TemporaryDirectory folder;
  const HParams parameters = {
      {"a", true}, {"b", std::int64_t{3}}, {"c", 0.5}, {"d", std::string("x")}};
  save_parameters(folder.path(),
                  {.estimator = "E",
                   .parameters = parameters,
                   .shape = FieldShape{.channels = 2, .size = {4, 5}, .outputs = 6}});
  const SavedParameters saved = load_parameters(folder.path(), "E");
  EXPECT_EQ(saved.parameters, parameters);
  EXPECT_EQ(saved.shape->size, (Sizes{4, 5}));
  EXPECT_EQ(saved.shape->outputs, 6);
}

TEST(Parameters, HaveTheScalingToTheLastDigit) {
  const TemporaryDirectory folder;
  const data::Scaling scaling{
      .features = {.kind = data::Normalization::kStandard,
                   .shift = {0.1, 1.0 / 3},
                   .scale = {3, 7}},
      .targets = {.kind = data::Normalization::kLog, .shift = {1e-300}, .scale = {2.5}}};
  save_parameters(folder.path(),
                  {.estimator = "E", .parameters = {}, .shape = {}, .scaling = scaling});
  EXPECT_EQ(load_parameters(folder.path(), "E").scaling, scaling);
  save_parameters(folder.path(), {.estimator = "E", .parameters = {}, .shape = {}});
  EXPECT_TRUE(load_parameters(folder.path(), "E").scaling.is_none());
  write_file_atomically(
      folder / "params.json",
      R"({"estimator": "E", "parameters": {}, "scaling": {"features": {"kind": "standard", "shift": [1], "scale": [0]}, "targets": {"kind": "none", "shift": [], "scale": []}}})");
  EXPECT_THROW(load_parameters(folder.path(), "E"), CheckpointError);
}

TEST(Parameters, OfAnotherOrDamagedAreRefused) {
  const TemporaryDirectory folder;
  EXPECT_THROW(load_parameters(folder.path(), "E"), CheckpointError);
  save_parameters(folder.path(), {.estimator = "F", .parameters = {}, .shape = {}});
  EXPECT_THROW(load_parameters(folder.path(), "E"), CheckpointError);
  write_file_atomically(folder / "params.json", "{\"estim");
  EXPECT_THROW(load_parameters(folder.path(), "E"), CheckpointError);
}

}  // namespace
}  // namespace lockstep::science
