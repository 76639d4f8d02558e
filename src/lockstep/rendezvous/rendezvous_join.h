// How a rank joins the rendezvous.
#pragma once

#include "lockstep/rendezvous/frame_channel.h"
#include "lockstep/rendezvous/rendezvous.h"

namespace lockstep::rendezvous {

// Connects and joins. While there is no server yet, it tries again. The server proves that it knows
// the token before this rank sends anything but random bytes (handshake.h).
// Throws ConfigError if an option is invalid, CommError as Rendezvous does.
FrameChannel join_rendezvous(const RendezvousOptions& options);

}  // namespace lockstep::rendezvous
