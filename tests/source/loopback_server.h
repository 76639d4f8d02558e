// A small web server on 127.0.0.1, which can also misbehave.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/base/file.h"

class LoopbackServer {
 public:
  // The key is a path, e.g. "/file". The value is everything that is sent before the connection is
  // closed. If it is empty, nothing is sent and the connection stays open.
  using Answers = std::map<std::string, std::string>;

  explicit LoopbackServer(Answers answers)
      : answers_(std::move(answers)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_.get(), generic, length) != 0 || ::listen(listener_.get(), 8) != 0 ||
        ::getsockname(listener_.get(), generic, &length) != 0) {
      throw std::runtime_error("cannot listen on 127.0.0.1");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }

  ~LoopbackServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);  // wakes accept()
    thread_.join();
  }

  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;

  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }

  static std::string ok(const std::string& body) {
    return "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  static std::string redirect(const std::string& url) {
    return "HTTP/1.1 302 Found\r\nConnection: close\r\nContent-Length: 0\r\nLocation: " + url +
           "\r\n\r\n";
  }

 private:
  void serve() {
    for (;;) {
      lockstep::FileDescriptor client(::accept(listener_.get(), nullptr, nullptr));
      if (!client) return;
      if (!answer(client.get())) silent_.push_back(std::move(client));
    }
  }

  // Returns false if the client must be kept waiting.
  bool answer(int client) const {
    std::string request;
    char buffer[4096];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t n = ::recv(client, buffer, sizeof(buffer), 0);
      if (n <= 0) return true;
      request.append(buffer, static_cast<std::size_t>(n));
    }
    const std::size_t path = request.find(' ') + 1;
    const auto found = answers_.find(request.substr(path, request.find(' ', path) - path));
    const std::string reply =
        found != answers_.end()
            ? found->second
            : "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    if (reply.empty()) return false;
    std::size_t sent = 0;
    while (sent < reply.size()) {
      const ssize_t n = ::send(client, reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return true;
      sent += static_cast<std::size_t>(n);
    }
    ::shutdown(client, SHUT_WR);
    return true;
  }

  Answers answers_;
  lockstep::FileDescriptor listener_;
  std::vector<lockstep::FileDescriptor> silent_;
  int port_ = 0;
  std::thread thread_;
};
