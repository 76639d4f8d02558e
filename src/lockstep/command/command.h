// The `lockstep` command as a function, for the program of that name and for yours, which may add
// targets of its own first:
//
//   int main(int argc, char** argv) {
//     ls::recipe::targets().models.add<NetOptions>("Net", …);
//     return ls::command_main(argc, argv);
//   }
#pragma once

namespace lockstep {

// What the command returns to the shell.
enum ExitCode : int {
  kDone = 0,
  kFailed = 1,        // training, or whatever was asked for, failed
  kBadUsage = 2,      // the command line or a config is wrong: nothing was started
  kWorkerFailed = 3,  // another process of the run failed
};

// Parses the command line, does what it says and prints what went wrong to standard error.
int command_main(int argc, char** argv);

}  // namespace lockstep
