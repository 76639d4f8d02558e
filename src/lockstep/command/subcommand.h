// Each subcommand is one file. It adds itself to the parser and sets the action to run if it was
// chosen.
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

// Each adds its subcommand to `app`. If the user chose it, the parser sets `chosen` to its action.
void add_run(CLI::App& app, Action& chosen);
void add_tune(CLI::App& app, Action& chosen);
void add_evaluate(CLI::App& app, Action& chosen);
void add_predict(CLI::App& app, Action& chosen);
void add_export(CLI::App& app, Action& chosen);
// `after_dashes`: the words from the first "--" of the command line on, which the parser does not
// see.
void add_launch(CLI::App& app, Action& chosen, const std::vector<std::string>& after_dashes);
void add_create(CLI::App& app, Action& chosen);
void add_targets(CLI::App& app, Action& chosen);
void add_doctor(CLI::App& app, Action& chosen);
void add_swa(CLI::App& app, Action& chosen);
void add_inspect(CLI::App& app, Action& chosen);
void add_completion(CLI::App& app, Action& chosen);

}  // namespace lockstep::command
