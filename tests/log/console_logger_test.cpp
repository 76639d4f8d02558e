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

TEST(ConsoleLogger, OneLinePerLoader) {
  EXPECT_EQ(Printed().log({.scope = Scope::kLoader,
                           .loader = "train",
                           .progress = kFirst,
                           .metrics = {{"loss", 0.534}, {"accuracy01", 0.8124}}}),
            "train (1/8) loss: 0.534 | accuracy01: 0.812\n");
}

TEST(ConsoleLogger, OneLinePerEpoch) {
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

TEST(ConsoleLogger, ALineHasTheMainMetricsAndFitsATerminal) {
  const std::string line = Printed().log({.scope = Scope::kLoader,
                                          .loader = "train",
                                          .progress = kFirst,
                                          .metrics = {{"loss", 0.5},
                                                      {"loss/std", 0.1},
                                                      {"lr", 0.02},
                                                      {"accuracy01", 0.8},
                                                      {"accuracy03", 0.9},
                                                      {"auc", 0.97},
                                                      {"auc/_macro", 0.97},
                                                      {"f1/_macro", 0.8},
                                                      {"f1/_micro", 0.8}}});
  EXPECT_EQ(line, "train (1/8) loss: 0.500 | accuracy01: 0.800 | auc: 0.970 | f1/_macro: 0.800\n");
  EXPECT_LE(line.size(), 80u);
}

TEST(ConsoleLogger, WhatWasAskedForIsShownWhateverItIsCalled) {
  CapturedStream stream;
  Console console{{.stream = stream.file(), .terminal = false}};
  ConsoleLogger logger(console, {.first = {"loss", "accuracy03"}});
  logger.log_metrics({.scope = Scope::kLoader,
                      .loader = "valid",
                      .progress = kFirst,
                      .metrics = {{"loss", 0.5},
                                  {"accuracy01", 0.8},
                                  {"accuracy03", 0.9},
                                  {"my_metric", 7},
                                  {"_timer/_fps", 1000}}});
  EXPECT_EQ(stream.flushed(),
            "valid (1/8) loss: 0.500 | accuracy03: 0.900 | accuracy01: 0.800 | my_metric: 7.000 | "
            "_timer/_fps: 1000.000\n");
}

TEST(ConsoleLogger, LinesAreAligned) {
  Printed printed;
  constexpr Progress kSecond = {.epoch = 2, .num_epochs = 10};
  for (const char* const loader : {"train", "valid_far", "test"}) {
    printed.log({.scope = Scope::kLoader,
                 .loader = loader,
                 .progress = kSecond,
                 .metrics = {{"loss", 0.5}}});
  }
  EXPECT_EQ(printed.stream.flushed(),
            "train (2/10)  loss: 0.500\n"
            "valid_far (2/10)  loss: 0.500\n"
            "test (2/10)       loss: 0.500\n");
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
