#include "lockstep/rendezvous/network.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::rendezvous {
namespace {

bool is_numeric(const std::string& address) {
  in_addr v4{};
  in6_addr v6{};
  const std::string without_scope = address.substr(0, address.find('%'));
  return ::inet_pton(AF_INET, address.c_str(), &v4) == 1 ||
         ::inet_pton(AF_INET6, without_scope.c_str(), &v6) == 1;
}

std::string text_of(const sockaddr& address) {
  const socklen_t size = address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST] = {};
  if (::getnameinfo(&address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

}  // namespace

bool is_loopback(const std::string& address) {
  if (address == "localhost") return true;
  in_addr v4{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  if (::inet_pton(AF_INET6, address.c_str(), &v6) != 1) return false;
  return std::memcmp(&v6, &in6addr_loopback, sizeof v6) == 0;
}

std::string address_of_interface(const std::string& name_or_address) {
  if (is_numeric(name_or_address)) return name_or_address;
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) {
    throw ConfigError("interface '{}': this host's interfaces are unknown: {}", name_or_address,
                      std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(found, &::freeifaddrs);
  std::set<std::string> names;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
      names.insert(at->ifa_name);
      if (name_or_address != at->ifa_name || at->ifa_addr == nullptr) continue;
      if (at->ifa_addr->sa_family != family) continue;
      if (std::string text = text_of(*at->ifa_addr); !text.empty()) return text;
    }
  }
  const std::vector<std::string> known(names.begin(), names.end());
  throw ConfigError(
      "interface '{}': expected an interface of this host that has an address ({}), or an "
      "address of this host",
      name_or_address, join(known, ", "));
}

NetworkChoice choose_network(const NetworkRequest& request,
                             const process::Environment& environment) {
  if (is_loopback(request.address)) return {.listen = request.address, .own = request.address};
  NetworkChoice choice{.listen = kAllInterfaces, .beyond_host = true};
  const auto variable = environment.find(kInterfaceVariable);
  const std::string wanted = request.interface.empty() && variable != environment.end()
                                 ? variable->second
                                 : request.interface;
  if (!wanted.empty()) {
    choice.chosen = address_of_interface(wanted);
    choice.listen = *choice.chosen;
    choice.own = *choice.chosen;
  }
  return choice;
}

}  // namespace lockstep::rendezvous
