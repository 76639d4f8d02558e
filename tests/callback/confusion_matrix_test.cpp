#include "lockstep/callback/confusion_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/toy.h"

namespace lockstep {
namespace {

struct Pictures : Logger {
  void log_metrics(const Record&) override {}
  void log_image(const std::string& loader, const std::string& tag, const Image& image,
                 const Progress& progress) override {
    seen.push_back(fmt::format("{} {} {}", loader, tag, progress.epoch));
    EXPECT_GT(image.width, 100);
  }
  std::vector<std::string> seen;
};

TEST(ConfusionMatrixCallback, CountsAndDraws) {
  TrainOptions options = toy::options();
  options.num_epochs = 2;
  auto confusion = std::make_shared<ConfusionMatrixCallback>(
      ConfusionMatrixCallbackOptions{.class_names = {"x", "y", "z"}});
  auto pictures = std::make_shared<Pictures>();
  options.callbacks = {confusion};
  options.loggers = {pictures};
  toy::train(options);
  EXPECT_THAT(pictures->seen,
              testing::ElementsAre("train confusion_matrix 1", "valid confusion_matrix 1",
                                   "train confusion_matrix 2", "valid confusion_matrix 2"));
  EXPECT_EQ(confusion->counts().sum().item<std::int64_t>(), 30) << "of the last pass, valid";
}

TEST(ConfusionMatrixCallback, NamesAndNumberMustAgree) {
  EXPECT_THAT(
      toy::error_of([] { ConfusionMatrixCallback({.num_classes = 3, .class_names = {"a"}}); }),
      testing::HasSubstr("class_names"));
  EXPECT_THROW(ConfusionMatrixCallback({}), ConfigError);
}

}  // namespace
}  // namespace lockstep
