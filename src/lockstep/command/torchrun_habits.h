// The parts of torchrun's command line that `lockstep launch` supports in another way or not at
// all. They are accepted, or refused with a message that says what to write instead.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::command {

// A message for an option that torchrun has and `lockstep launch` does not have: what to do
// instead. `word` is what the user wrote: "--rdzv_conf", "--monitor-interval=5". Nothing if it is
// not such an option.
std::optional<std::string> instead_of_torchrun_option(const std::string& word);

// --nnodes: a number, or torchrun's MIN:MAX.
struct NodeCount {
  int least = 1;
  int most = 1;
};
// Throws ConfigError.
NodeCount parse_node_count(const std::string& text);

// --redirects and --tee: "0" is none, "1" standard output, "2" standard error, "3" both. Throws
// ConfigError, naming the option.
std::array<bool, 2> parse_streams(const std::string& option, const std::string& text);

// Throws ConfigError if the program is a Python script that cannot be started as it is. torchrun
// would start such a script with Python.
void check_is_program(const std::vector<std::string>& command);

}  // namespace lockstep::command
