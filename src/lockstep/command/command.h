// The `lockstep` command as a function, for the program of that name and for yours, which may add
// targets of its own first:
//
//   int main(int argc, char** argv) {
//     ls::recipe::targets().models.add<NetOptions>("Net", …);
//     return ls::command_main(argc, argv);
//   }
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

// What the command returns to the shell.
enum ExitCode : int {
  kDone = 0,
  kFailed = 1,        // training, or whatever was asked for, failed
  kBadUsage = 2,      // the command line or a config is wrong: nothing was started
  kWorkerFailed = 3,  // another process of the run failed
};

// A subcommand of your program's own, listed by --help beside Lockstep's.
struct OwnCommand {
  std::string name;   // "train"
  std::string about;  // a line for --help
  // What it does with its own arguments, which begin with its name as argv[0]. Returns the exit
  // code.
  std::function<int(int argc, char** argv)> run;
};

// Parses the command line, does what it says and prints what went wrong to standard error. `own`
// are subcommands beside Lockstep's. Throws ConfigError where one has the name of another.
int command_main(int argc, char** argv, const std::vector<OwnCommand>& own = {});

}  // namespace lockstep
