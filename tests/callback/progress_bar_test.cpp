#include "lockstep/callback/progress_bar.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/callback/classification.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// What a console of the given kind shows during a run.
std::string shown(bool terminal, bool fail = false) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = open_memstream(&text, &size);
  {
    Console console({.stream = stream, .terminal = terminal, .width = 120, .utf8 = false});
    TrainOptions options = toy::options();
    options.num_epochs = 1;
    auto bad = std::make_shared<toy::Hooks>();
    if (fail) bad->backward = [](State&) { throw Error("boom"); };
    options.callbacks = {ProgressBarCallback(console), AccuracyCallback({.num_classes = 3}), bad};
    toy::error_of([&] { toy::train(options); });
  }
  std::fclose(stream);
  const std::string output(text, size);
  std::free(text);
  return output;
}

TEST(ProgressBarCallback, ShowsEachPassOnATerminal) {
  const std::string output = shown(true);
  EXPECT_THAT(output, HasSubstr("1/1 * Epoch (train)"));
  EXPECT_THAT(output, HasSubstr("1/1 * Epoch (valid)"));
  EXPECT_THAT(output, HasSubstr("7/7"));
  EXPECT_THAT(output, HasSubstr("accuracy01="));
  EXPECT_THAT(output, HasSubstr("loss="));
  EXPECT_THAT(output, HasSubstr("samples/s"));
}

TEST(ProgressBarCallback, DrawsNoBarInAFile) {
  EXPECT_THAT(shown(false), testing::Not(HasSubstr("\r")));
}

TEST(ProgressBarCallback, DisappearsWhenTheRunFails) {
  const std::string output = shown(true, /*fail=*/true);
  EXPECT_THAT(output, testing::Not(HasSubstr("7/7")));
}

}  // namespace
}  // namespace lockstep
