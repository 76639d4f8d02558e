// Which of this host's addresses a run uses.
#pragma once

#include <optional>
#include <string>

#include "lockstep/process/environment.h"

namespace lockstep::rendezvous {

inline constexpr const char* kInterfaceVariable = "LOCKSTEP_INTERFACE";
inline constexpr const char* kLoopback = "127.0.0.1";
// For Endpoint::address, where one listens: every interface, IPv4 and IPv6.
inline constexpr const char* kAllInterfaces = "*";

// Whether the text itself says so: localhost, 127.x.y.z, ::1. A host's own name is not resolved
// here: many hosts resolve theirs to 127.0.1.1 and other hosts know them by another address.
bool is_loopback(const std::string& address);

// The address of an interface ("eth0"), IPv4 before IPv6; an address is returned as it is. Throws
// ConfigError, with the interfaces there are, where there is no such interface or it has none.
std::string address_of_interface(const std::string& name_or_address);

struct NetworkRequest {
  std::string address = kLoopback;  // where all ranks were told to meet
  std::string interface = {};       // that the program's options name; "" where they name none
};

// How a run's processes on this host reach each other and are reached.
struct NetworkChoice {
  std::string listen = kLoopback;          // where rank 0 listens
  std::string own = kLoopback;             // where rank 0's own host finds it
  std::optional<std::string> chosen = {};  // this host's address on the interface that was chosen
  bool beyond_host = false;                // whether other hosts can reach it
};

// Loopback stays on this host. Everything else is listened for on
// all interfaces, as a host may not own the address that others know it by (NAT, a service's
// address, 127.0.1.1), unless the options or LOCKSTEP_INTERFACE names one.
NetworkChoice choose_network(const NetworkRequest& request,
                             const process::Environment& environment);

}  // namespace lockstep::rendezvous
