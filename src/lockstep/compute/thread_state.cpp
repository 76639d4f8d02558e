#include "lockstep/compute/thread_state.h"

#include <mutex>
#include <utility>

namespace lockstep::compute {
namespace {

// Of the process, because the code that registers a kind of state knows nothing of the modules that
// are computed again.
struct InheritedKinds {
  std::mutex mutex;
  std::vector<std::function<SetThreadState()>> captures;
};

InheritedKinds& inherited_kinds() {
  static InheritedKinds kinds;
  return kinds;
}

}  // namespace

void inherit_thread_state(std::function<SetThreadState()> capture) {
  InheritedKinds& kinds = inherited_kinds();
  const std::lock_guard lock(kinds.mutex);
  kinds.captures.push_back(std::move(capture));
}

std::vector<SetThreadState> captured_thread_state() {
  InheritedKinds& kinds = inherited_kinds();
  const std::lock_guard lock(kinds.mutex);
  std::vector<SetThreadState> states;
  for (const auto& capture : kinds.captures) states.push_back(capture());
  return states;
}

}  // namespace lockstep::compute
