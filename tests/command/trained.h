// A tiny run for tests of the commands that use a trained model.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "tests/command/support.h"

namespace lockstep::command::testing {

class Trained : public ::testing::Test {
 protected:
  Trained() { write_file_atomically(folder_ / "tiny.yml", kTinyConfig); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // Trains to the folder "run".
  void train(std::vector<std::string> words = {}) const {
    words.insert(words.begin(), {"run", "-C", path("tiny.yml"), "--logdir", path("run")});
    const Ran ran = run_command(words);
    ASSERT_EQ(ran.code, kDone) << ran.errors;
  }

  TemporaryDirectory folder_;
};

// An override that adds a metric.
inline const char* const kAccuracy = "callbacks=[{AccuracyCallback: {num_classes: 3}}]";

}  // namespace lockstep::command::testing
