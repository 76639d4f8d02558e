// How a rank gets into the rendezvous.
#pragma once

#include "lockstep/rendezvous/frame_channel.h"
#include "lockstep/rendezvous/rendezvous.h"

namespace lockstep::rendezvous {

// Connects, again and again while there is no server yet. The server proves that it knows the token
// before this rank tells anything but a random number (handshake.h).
// Throws ConfigError for options without meaning, CommError as Rendezvous does.
FrameChannel join_rendezvous(const RendezvousOptions& options);

}  // namespace lockstep::rendezvous
