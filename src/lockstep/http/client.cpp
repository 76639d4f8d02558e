#include "lockstep/http/client.h"

#include <algorithm>
#include <array>
#include <span>

#include "lockstep/base/file.h"
#include "lockstep/http/curl_library.h"

namespace lockstep::http {
namespace {

constexpr std::size_t kLongestAnswer = std::size_t{16} << 20;
constexpr double kConnectSeconds = 5;

struct Cleanup {
  void operator()(CURL* curl) const { curl_library().easy_cleanup(curl); }
  void operator()(curl_slist* list) const { curl_library().slist_free_all(list); }
};

// libcurl, which is C, calls these two, so they must not throw. A short count ends the request.
std::size_t take_answer(const char* bytes, std::size_t, std::size_t count, void* target) {
  auto& body = *static_cast<std::string*>(target);
  if (body.size() + count > kLongestAnswer) return 0;
  try {
    body.append(bytes, count);
  } catch (const std::exception&) {
    return 0;
  }
  return count;
}

std::size_t give_file(char* bytes, std::size_t, std::size_t count, void* source) {
  try {
    return read_some(*static_cast<const FileDescriptor*>(source), std::span(bytes, count));
  } catch (const std::exception&) {
    return CURL_READFUNC_ABORT;
  }
}

long milliseconds(double seconds) {
  return static_cast<long>(seconds * 1000);
}

}  // namespace

class Client::Connection {
 public:
  Connection() : curl_(library_.easy_init()) {
    if (curl_ == nullptr) throw Error("libcurl: cannot start");
  }

  Answer send(const Request& request) {
    Answer answer;
    std::array<char, CURL_ERROR_SIZE> message{};
    library_.easy_reset(curl_.get());
    const std::unique_ptr<curl_slist, Cleanup> headers(
        library_.slist_append(nullptr, ("Content-Type: " + request.content_type).c_str()));
    std::optional<OpenedFile> file;
    if (request.file) file = open_regular_file(*request.file);

    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_ERRORBUFFER, message.data());
    set(CURLOPT_USERAGENT, "lockstep");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_HTTPHEADER, headers.get());
    set(CURLOPT_WRITEFUNCTION, &take_answer);
    set(CURLOPT_WRITEDATA, &answer.body);
    set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds(std::min(request.timeout, kConnectSeconds)));
    set_login(request.login);
    if (file) {
      set_file(*file, request.timeout);
    } else {
      set(CURLOPT_TIMEOUT_MS, milliseconds(request.timeout));
      if (request.method != "GET") {
        set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
        set(CURLOPT_POSTFIELDS, request.body.data());
      }
    }
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());

    const CURLcode status = library_.easy_perform(curl_.get());
    if (status != CURLE_OK) {
      throw NoAnswer("{}: {}", request.url,
                     message[0] != '\0' ? message.data() : library_.easy_strerror(status));
    }
    library_.easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &answer.status);
    return answer;
  }

 private:
  void set(CURLoption option, auto value) { library_.easy_setopt(curl_.get(), option, value); }

  void set_login(const Login& login) {
    if (login.token) {
      set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
      set(CURLOPT_XOAUTH2_BEARER, login.token->c_str());
    } else if (login.username) {
      set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BASIC));
      set(CURLOPT_USERNAME, login.username->c_str());
      set(CURLOPT_PASSWORD, login.password.value_or("").c_str());
    }
  }

  // A large file may take long, so only the time without progress is limited. After the last byte
  // the server may be silent while it stores the file, so the limit is longer than that of other
  // requests.
  void set_file(const OpenedFile& file, double timeout) {
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_READFUNCTION, &give_file);
    set(CURLOPT_READDATA, &file.descriptor);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(file.size));
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    constexpr double kStoring = 12;
    set(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(kStoring * timeout)));
  }

  const CurlLibrary& library_ = curl_library();
  std::unique_ptr<CURL, Cleanup> curl_;
};

Client::Client() : connection_(std::make_unique<Connection>()) {}

Client::~Client() = default;

Answer Client::send(const Request& request) {
  return connection_->send(request);
}

}  // namespace lockstep::http
