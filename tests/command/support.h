// Runs the command in this process, as a shell would, and captures its output.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/command/command.h"

namespace lockstep::command::testing {

struct Ran {
  int code = 0;
  std::string output;
  std::string errors;
};

inline Ran run_command(std::vector<std::string> words) {
  words.insert(words.begin(), "lockstep");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  Ran ran;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  ran.code = command_main(static_cast<int>(words.size()), arguments.data());
  ran.output = ::testing::internal::GetCapturedStdout();
  ran.errors = ::testing::internal::GetCapturedStderr();
  return ran;
}

// Writes a config with a very short training to `path`.
inline const char* const kTinyConfig = R"(model: [{Linear: {out_features: 3}}]
criterion: CrossEntropyLoss
optimizer: {_target_: SGD, lr: 0.1}
loaders:
  train: {dataset: {_target_: Noise, samples: 32, shape: 4, classes: 3, seed: 1}, batch_size: 8, shuffle: true}
  valid: {dataset: {_target_: Noise, samples: 8, shape: 4, classes: 3, seed: 2}, batch_size: 8}
valid_loader: valid
num_epochs: 2
)";

}  // namespace lockstep::command::testing
