// torchrun's command line, where `lockstep launch` does what it asks for in another way or not at
// all: what users bring along is read, or refused with what to write instead.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::command {

// What to do instead of an option that torchrun has and `lockstep launch` has not. `word` is as the
// user wrote it: "--rdzv_conf", "--monitor-interval=5". Nothing where torchrun has no such option.
std::optional<std::string> instead_of_torchrun_option(const std::string& word);

// --nnodes: a number, or torchrun's MIN:MAX with equal numbers. Throws ConfigError.
int parse_node_count(const std::string& text);

// --redirects and --tee: "0" is none, "1" standard output, "2" standard error, "3" both. Throws
// ConfigError, naming the option.
std::array<bool, 2> parse_streams(const std::string& option, const std::string& text);

// Throws ConfigError where the program is a Python script that cannot be started as it is, because
// torchrun would have started it with Python.
void check_is_program(const std::vector<std::string>& command);

}  // namespace lockstep::command
