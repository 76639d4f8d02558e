// A port that no process listened on a moment ago.
#pragma once

#include "lockstep/rendezvous/socket.h"

namespace lockstep::comm {

inline int free_port() {
  return rendezvous::local_port(rendezvous::listen_on({}));
}

}  // namespace lockstep::comm
