// The client of a build without curl (LOCKSTEP_DOWNLOAD=OFF).
#include "lockstep/http/client.h"

namespace lockstep::http {

class Client::Connection {};

Client::Client() {
  throw Error(
      "this build of Lockstep cannot talk to a web server (LOCKSTEP_DOWNLOAD=OFF); build it with "
      "LOCKSTEP_DOWNLOAD=ON");
}

Client::~Client() = default;

Answer Client::send(const Request&) {
  return {};  // never called: there is no client
}

}  // namespace lockstep::http
