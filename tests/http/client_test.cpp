#include "lockstep/http/client.h"

#include <chrono>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include "lockstep/base/file.h"
#include "tests/data/error_text.h"
#include "tests/source/loopback_server.h"

namespace lockstep::http {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Answers with what it was sent.
class Echo : public ::testing::Test {
 protected:
  Echo() {
    const auto echo = [this](const httplib::Request& request, httplib::Response& response) {
      const std::lock_guard lock(mutex_);
      headers_ = request.headers;
      response.status = request.path == "/refused" ? 418 : 200;
      response.set_content(request.method + " " + request.body, "text/plain");
    };
    server_.Get(".*", echo);
    server_.Post(".*", echo);
    server_.Put(".*", echo);
    server_.set_keep_alive_max_count(1);  // stop() waits for connections that are open
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    for (int i = 0; i < 5000 && !server_.is_running(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ~Echo() override {
    server_.stop();
    thread_.join();
  }

  std::string url(const std::string& path) const {
    return fmt::format("http://127.0.0.1:{}{}", port_, path);
  }
  std::string header(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = headers_.find(name);
    return found == headers_.end() ? "" : found->second;
  }

  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  std::mutex mutex_;
  httplib::Headers headers_;
  Client client_;
};

TEST_F(Echo, GetsWhatWasSent) {
  EXPECT_EQ(client_.send({.url = url("/")}).body, "GET ");
  const Answer answer = client_.send({.method = "POST", .url = url("/refused"), .body = "{}"});
  EXPECT_EQ(answer.body, "POST {}");
  EXPECT_EQ(answer.status, 418);
  EXPECT_EQ(header("Content-Type"), "application/json");
  EXPECT_EQ(header("Authorization"), "");
}

TEST_F(Echo, GetsAFile) {
  const TemporaryDirectory folder;
  const std::string content(300'000, 'x');
  write_file_atomically(folder / "a", content);
  const Answer answer = client_.send(
      {.method = "PUT", .url = url("/"), .file = folder / "a", .content_type = "text/plain"});
  EXPECT_EQ(answer.body, "PUT " + content);
  EXPECT_EQ(header("Content-Length"), "300000");
  EXPECT_EQ(client_.send({.method = "POST", .url = url("/"), .body = "b"}).body, "POST b")
      << "the next request does not send the file again";
  EXPECT_THAT(error_text<Error>([&] {
                client_.send({.method = "PUT", .url = url("/"), .file = folder / "none"});
              }),
              HasSubstr("none"));
}

TEST_F(Echo, LearnsWhoAsks) {
  client_.send({.url = url("/"), .login = {.token = "t0ken"}});
  EXPECT_EQ(header("Authorization"), "Bearer t0ken");
  client_.send({.url = url("/"), .login = {.username = "me", .password = "se cret"}});
  EXPECT_EQ(header("Authorization"), "Basic bWU6c2UgY3JldA==");
  client_.send({.url = url("/")});
  EXPECT_EQ(header("Authorization"), "") << "a login is that of one request";
}

TEST(HttpClient, NamesAServerThatIsNotThere) {
  Client client;
  EXPECT_THAT(error_text<NoAnswer>([&] {
                client.send({.url = "http://127.0.0.1:1/a", .login = {.token = "t0ken"}});
              }),
              AllOf(HasSubstr("http://127.0.0.1:1/a"), Not(HasSubstr("t0ken"))));
}

TEST(HttpClient, DoesNotWaitForEverForAnAnswer) {
  const LoopbackServer silent(LoopbackServer::Answers{{"/", ""}});
  Client client;
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THROW(client.send({.url = silent.url("/"), .timeout = 0.2}), NoAnswer);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST(HttpClient, RefusesOtherProtocols) {
  Client client;
  EXPECT_THROW(client.send({.url = "file:///etc/passwd"}), NoAnswer);
}

}  // namespace
}  // namespace lockstep::http
