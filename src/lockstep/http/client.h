// Requests to a web server, over libcurl.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::http {

// The server did not answer: it cannot be reached, or the time limit is over.
class NoAnswer : public Error {
  using Error::Error;
};

// Shows the server who asks: a token, or a user with a password.
struct Login {
  std::optional<std::string> token = {};
  std::optional<std::string> username = {};
  std::optional<std::string> password = {};
};

struct Request {
  std::string method = "GET";
  std::string url = {};
  std::string body = {};
  // Sent instead of `body`. It is read piece by piece while it is sent.
  std::optional<std::filesystem::path> file = {};
  std::string content_type = "application/json";
  Login login = {};
  // Seconds for the whole request. If a file is sent: seconds in which nothing moves.
  double timeout = 10;
};

struct Answer {
  long status = 0;
  std::string body = {};
};

// One connection, which stays open between requests. For one thread.
class Client {
 public:
  // Throws Error if libcurl cannot be opened, or if Lockstep was built without it.
  Client();
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Throws NoAnswer, which has the address without the login, and the cause. Redirections are not
  // followed. An answer of more than 16 MiB is refused.
  Answer send(const Request& request);

 private:
  class Connection;
  std::unique_ptr<Connection> connection_;
};

}  // namespace lockstep::http
