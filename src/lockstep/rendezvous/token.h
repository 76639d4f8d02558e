// Where a run's token comes from, and whether it is good enough. The token is the secret by which
// the processes of a run recognise each other (handshake.h). It is never passed as an argument of a
// program, because every user of a machine can read those, and it is never printed.
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
  std::string given = {};                          // the program's own token; "" if it has none
  std::optional<std::filesystem::path> file = {};  // the token file that the options name
  std::string run = {};                            // the run's name, which is no secret
  std::string place = {};                          // of the rendezvous: "10.0.0.1:29500"
  bool beyond_host = false;                        // whether other hosts can reach that place
  bool allow_guessable = false;  // warn about a token that can be guessed instead of refusing it
};

// The first of these that exists: the given token, the file, LOCKSTEP_TOKEN, the file that
// LOCKSTEP_TOKEN_FILE names. If there is none and the run has one host, the token is made of the
// place and the run's name. That tells runs apart, but is no secret: any process that knows the two
// can join.
//
// Throws ConfigError, with the remedy, if ranks of several hosts have no token or one that can be
// guessed; allow_guessable or LOCKSTEP_ALLOW_GUESSABLE_TOKEN=1 turns that into a warning.
std::string resolve_token(const TokenRequest& request, const process::Environment& environment);

// The file's content without white space around it. Throws ConfigError, with the path, if the file
// cannot be read, is empty, belongs to another user than this one or root, or if other users may
// read or write it.
std::string read_token_file(const std::filesystem::path& path);

// Whether the token has fewer than 16 characters, fewer than 6 different characters, or is a name
// that is no secret.
bool is_guessable(const std::string& token, const TokenRequest& request);

}  // namespace lockstep::rendezvous
