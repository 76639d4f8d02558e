#include "lockstep/base/warn.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include "lockstep/base/color.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

// This state is global because the process has only one standard error.
struct Warnings {
  std::mutex mutex;
  WarningHandler handler;
  std::set<std::string> shown;
};

Warnings& warnings() {
  static Warnings instance;
  return instance;
}

}  // namespace

void warn(const std::string& text) {
  const std::string message = printable_lines(text);
  WarningHandler handler;
  {
    std::lock_guard lock(warnings().mutex);
    handler = warnings().handler;
  }
  if (handler) {
    handler(message);
  } else {
    print_warning(message);
  }
}

void print_warning(const std::string& message) {
  const std::string prefix = colored_on(stderr, "lockstep: warning:", TextColor::kYellow);
  std::fprintf(stderr, "%s %s\n", prefix.c_str(), message.c_str());
}

void warn_once(const std::string& message) {
  {
    std::lock_guard lock(warnings().mutex);
    if (!warnings().shown.insert(message).second) return;
  }
  warn(message);
}

WarningHandler set_warning_handler(WarningHandler handler) {
  std::lock_guard lock(warnings().mutex);
  return std::exchange(warnings().handler, std::move(handler));
}

}  // namespace lockstep
