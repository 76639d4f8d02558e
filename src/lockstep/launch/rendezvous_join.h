// How a rank gets into the rendezvous.
#pragma once

#include "lockstep/launch/frame_channel.h"
#include "lockstep/launch/rendezvous.h"

namespace lockstep::launch {

// Connects, again and again while there is no server yet, and shows token, rank and world size.
// Throws ConfigError for options without meaning, CommError as Rendezvous does.
FrameChannel join_rendezvous(const RendezvousOptions& options);

}  // namespace lockstep::launch
