// Which of this host's addresses a run uses.
#pragma once

#include <optional>
#include <string>

#include "lockstep/process/environment.h"

namespace lockstep::rendezvous {

inline constexpr const char* kInterfaceVariable = "LOCKSTEP_INTERFACE";
inline constexpr const char* kLoopback = "127.0.0.1";
// As Endpoint::address of a server: listen on every interface, IPv4 and IPv6.
inline constexpr const char* kAllInterfaces = "*";

// Whether the text is a loopback address: localhost, 127.x.y.z, ::1. Host names are not resolved:
// many hosts resolve their own name to 127.0.1.1, while other hosts know them by another address.
bool is_loopback(const std::string& address);

// The address of an interface ("eth0"), IPv4 before IPv6. If an address is given, it is returned
// unchanged. Throws ConfigError, with the names of all interfaces, if there is no such interface or
// it has no address.
std::string address_of_interface(const std::string& name_or_address);

struct NetworkRequest {
  std::string address = kLoopback;  // of the rendezvous, as all ranks were given it
  std::string interface = {};       // from the program's options; "" if they name none
};

// The addresses by which a run's processes on this host reach each other and are reached.
struct NetworkChoice {
  std::string listen = kLoopback;          // where rank 0 listens
  std::string own = kLoopback;             // where processes of rank 0's host connect to it
  std::optional<std::string> chosen = {};  // this host's address on the interface that was chosen
  bool beyond_host = false;                // whether other hosts can reach rank 0
};

// With a loopback address, rank 0 listens only on that address. With any other address it listens
// on all interfaces, because a host may not own the address by which other hosts know it (NAT, a
// service's address, 127.0.1.1). If the options or LOCKSTEP_INTERFACE name an interface, rank 0
// listens only there. This is about the rendezvous: Gloo gives other hosts the address that it
// listens on, and has no setting for another one, so the hosts of a run must reach each other's own
// addresses.
NetworkChoice choose_network(const NetworkRequest& request,
                             const process::Environment& environment);

}  // namespace lockstep::rendezvous
