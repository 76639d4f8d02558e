// One file a subcommand: each adds itself to the parser and says what to do when it was chosen.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep::command {

// Returns the exit code.
using Action = std::function<int()>;

// Each adds its subcommand to `app`. When it was chosen, `chosen` is set to what is to be done.
void add_run(CLI::App& app, Action& chosen);
// `after_dashes`: what followed a "--" on the command line, which the parser does not see.
void add_launch(CLI::App& app, Action& chosen, const std::vector<std::string>& after_dashes);
void add_create(CLI::App& app, Action& chosen);
void add_targets(CLI::App& app, Action& chosen);
void add_doctor(CLI::App& app, Action& chosen);
void add_swa(CLI::App& app, Action& chosen);
void add_inspect(CLI::App& app, Action& chosen);
void add_completion(CLI::App& app, Action& chosen);

}  // namespace lockstep::command
