#include "lockstep/log/console_logger.h"

#include <limits>

#include <gtest/gtest.h>

#include "tests/log/captured_stream.h"

namespace lockstep {
namespace {

struct Printed {
  CapturedStream stream;
  Console console{{.stream = stream.file(), .terminal = false}};
  ConsoleLogger logger{console};

  std::string log(const Record& record) {
    logger.log_metrics(record);
    return stream.flushed();
  }
};

constexpr Progress kFirst = {.epoch = 1, .num_epochs = 8};

TEST(ConsoleLogger, ALineALoader) {
  EXPECT_EQ(Printed().log({.scope = Scope::kLoader,
                           .loader = "train",
                           .progress = kFirst,
                           .metrics = {{"loss", 0.534}, {"accuracy01", 0.8124}}}),
            "train (1/8) accuracy01: 0.812 | loss: 0.534\n");
}

TEST(ConsoleLogger, ALineAnEpoch) {
  EXPECT_EQ(Printed().log({.scope = Scope::kEpoch,
                           .loader = kEpochKey,
                           .progress = kFirst,
                           .metrics = {{"momentum", 0.9}, {"lr", 0.02}}}),
            "* Epoch (1/8) lr: 0.020 | momentum: 0.900\n");
  EXPECT_EQ(Printed().log({.scope = Scope::kEpoch, .progress = kFirst}), "* Epoch (1/8)\n");
}

TEST(ConsoleLogger, BatchesAreNotPrinted) {
  EXPECT_EQ(Printed().log({.scope = Scope::kBatch,
                           .loader = "train",
                           .progress = kFirst,
                           .metrics = {{"loss", 1.0}}}),
            "");
}

TEST(ConsoleLogger, DeviationsAndSecondNamesAreLeftToFiles) {
  EXPECT_EQ(Printed().log({.scope = Scope::kLoader,
                           .loader = "train",
                           .progress = kFirst,
                           .metrics = {{"loss", 0.5}, {"loss/mean", 0.5}, {"loss/std", 0.1}}}),
            "train (1/8) loss: 0.500\n");
}

TEST(ConsoleLogger, WhatIsNoNumberIsShownAsSuch) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Printed().log({.scope = Scope::kLoader,
                           .loader = "valid",
                           .progress = kFirst,
                           .metrics = {{"a", nan}, {"b", inf}, {"c", -inf}, {"d", 1.5e-7}}}),
            "valid (1/8) a: nan | b: inf | c: -inf | d: 1.500e-07\n");
}

}  // namespace
}  // namespace lockstep
