// Warnings go to standard error, one line each, and never stop a run.
#pragma once

#include <functional>
#include <string>

namespace lockstep {

void warn(const std::string& message);

// Like warn(), but the same message is shown only once per process.
void warn_once(const std::string& message);

// Prints the message to standard error as warn() does by default: "lockstep: warning: …", in colour
// on a terminal. A warning handler can call this.
void print_warning(const std::string& message);

// Sets a function that receives all warnings; they no longer go to standard error. A progress bar
// uses it, so that a warning does not break its line. An empty function restores standard error.
// Returns the previous handler.
using WarningHandler = std::function<void(const std::string&)>;
WarningHandler set_warning_handler(WarningHandler handler);

}  // namespace lockstep
