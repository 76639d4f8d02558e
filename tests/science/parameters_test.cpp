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
