// Where a run's token comes from, and whether it is good enough. The token is the secret by which
// the processes of a run recognise each other (handshake.h). It is never an argument of a program,
// which every user of a machine can read, and it is never printed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/process/environment.h"

namespace lockstep::rendezvous {

inline constexpr const char* kTokenVariable = "LOCKSTEP_TOKEN";
inline constexpr const char* kTokenFileVariable = "LOCKSTEP_TOKEN_FILE";
inline constexpr const char* kAllowGuessableVariable = "LOCKSTEP_ALLOW_GUESSABLE_TOKEN";

struct TokenRequest {
  std::string given = {};                          // by the program itself; "" where it has none
  std::optional<std::filesystem::path> file = {};  // that the program's options name
  std::string run = {};                            // the run's name, which is no secret
  std::string place = {};                          // where the ranks meet: "10.0.0.1:29500"
  bool beyond_host = false;                        // whether other hosts can reach that place
  bool allow_guessable = false;  // warn about a token that can be guessed instead of refusing it
};

// The first of: the one given, the file, LOCKSTEP_TOKEN, the file that LOCKSTEP_TOKEN_FILE names.
// On one host, where there is none of them: a name made of the place and the run, which tells runs
// apart, but is no secret: a process that knows it can join.
//
// Throws ConfigError, with the remedy, where ranks of several hosts have no token or one that can
// be guessed; allow_guessable or LOCKSTEP_ALLOW_GUESSABLE_TOKEN=1 turns that into a warning.
std::string resolve_token(const TokenRequest& request, const process::Environment& environment);

// The content without white space around it. Throws ConfigError, with the path and the remedy,
// where it cannot be read, is empty, is not the user's own (or root's), or others may read it.
std::string read_token_file(const std::filesystem::path& path);

// Fewer than 16 characters, fewer than 6 different ones, or a name that others know, too.
bool is_guessable(const std::string& token, const TokenRequest& request);

}  // namespace lockstep::rendezvous
