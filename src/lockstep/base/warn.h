// Warnings go to standard error, one line each, and never stop a run.
#pragma once

#include <functional>
#include <string>

namespace lockstep {

void warn(const std::string& message);

// The same message is shown once in the life of the process.
void warn_once(const std::string& message);

// Prints it to standard error as warn() does by default: "lockstep: warning: …", in colour on a
// terminal. For handlers that pass a warning on.
void print_warning(const std::string& message);

// Receives warnings instead of standard error. A progress bar uses it to keep its line whole; an
// empty function restores standard error. Returns the previous one.
using WarningHandler = std::function<void(const std::string&)>;
WarningHandler set_warning_handler(WarningHandler handler);

}  // namespace lockstep
