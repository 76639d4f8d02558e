// The `lockstep` command as a function, for the program of that name and for your own program,
// which may add its targets first:
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

// The exit codes of the command.
enum ExitCode : int {
  kDone = 0,
  kFailed = 1,        // training, or the other work of the command, failed
  kBadUsage = 2,      // the command line or a config is wrong: nothing was started
  kWorkerFailed = 3,  // another process of the run failed
};

// A subcommand of your own program. --help lists it together with those of Lockstep.
struct OwnCommand {
  std::string name;   // "train"
  std::string about;  // a line for --help
  // Called with the subcommand's arguments; argv[0] is its name. Returns the exit code.
  std::function<int(int argc, char** argv)> run;
};

// Parses the command line, runs the chosen subcommand and prints errors to standard error. `own`
// are subcommands in addition to those of Lockstep. Throws ConfigError if two have the same name.
int command_main(int argc, char** argv, const std::vector<OwnCommand>& own = {});

}  // namespace lockstep
