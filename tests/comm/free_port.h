// A port that nobody listened on a moment ago.
#pragma once

#include "lockstep/launch/socket.h"

namespace lockstep::comm {

inline int free_port() {
  return launch::local_port(launch::listen_on({}));
}

}  // namespace lockstep::comm
