// The command line of the small examples: they all have the same flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/lockstep.h>

struct Flags {
  std::int64_t epochs = 1;
  std::optional<int> workers, shards;
  int max_restarts = 0;                         // how many times workers are made anew
  lockstep::Wire wire = lockstep::Wire::kFp32;  // how gradients are summed and sent
  std::optional<std::string> logdir, resume;
  std::int64_t save_every = 0;  // batches; 0: only at the end of epochs
  std::string precision = "fp32";
  bool quiet = false;

  // Saves checkpoints, if there is a logdir.
  lockstep::Callbacks callbacks() const;
};

// A flag that only one example has, with a text as its value.
struct TextFlag {
  std::string name;  // "--root"
  std::string help;
  std::optional<std::string>& value;
};

// `about` is a sentence for --help, `epochs` the default. Ends the program after --help and after a
// wrong flag.
Flags read_flags(int argc, char** argv, const std::string& about, std::int64_t epochs,
                 const std::vector<TextFlag>& more = {});
