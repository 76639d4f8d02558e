#include "lockstep/source/download.h"

#include <array>
#include <memory>
#include <optional>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/http/curl_library.h"
#include "lockstep/source/digest.h"
#include "lockstep/source/download_progress.h"

namespace lockstep::data {
namespace fs = std::filesystem;
using http::curl_library;
using http::CurlLibrary;

namespace {

// Makes the folder of the file, with its parents. The folders that were made are removed again
// unless keep() is called.
class Destination {
 public:
  explicit Destination(const fs::path& folder) {
    std::error_code ignored;
    for (fs::path path = folder; !path.empty() && !fs::exists(path, ignored);
         path = path.parent_path()) {
      made_.push_back(path);
      if (!path.has_relative_path()) break;
    }
    if (!folder.empty()) make_directories(folder);
  }
  ~Destination() {
    std::error_code in_use;  // for example by another process that puts files there
    for (const fs::path& path : made_) fs::remove(path, in_use);
  }
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  void keep() { made_.clear(); }

 private:
  std::vector<fs::path> made_;  // the innermost first
};

// One attempt at one mirror.
class Transfer {
 public:
  Transfer(const DownloadOptions& options, const std::string& url)
      : options_(options),
        url_(url),
        file_(options.path),
        progress_(options.path.filename(), url) {}

  // Throws Error with the reason.
  void run() {
    const Curl curl(library_.easy_init());
    if (!curl) throw Error("libcurl: cannot start");
    configure(curl.get());
    const CURLcode status = library_.easy_perform(curl.get());
    if (reason_) throw DataError(*reason_);
    if (status != CURLE_OK) {
      throw DataError("{}", message_[0] != '\0' ? message_.data() : library_.easy_strerror(status));
    }
    const std::string found = digest_.finish();
    const std::string& expected = has_sha256_ ? options_.sha256 : options_.md5;
    if (found != expected) {
      throw DataError("wrong file: {} of the {} bytes is {}, expected {}",
                      has_sha256_ ? "SHA-256" : "MD5", received_, found, expected);
    }
    file_.commit();
    progress_.done(received_);
  }

 private:
  struct Cleanup {
    void operator()(CURL* curl) const { curl_library().easy_cleanup(curl); }
  };
  using Curl = std::unique_ptr<CURL, Cleanup>;

  void configure(CURL* curl) {
    const auto set = [&](CURLoption option, auto value) {
      library_.easy_setopt(curl, option, value);
    };
    set(CURLOPT_URL, url_.c_str());
    set(CURLOPT_ERRORBUFFER, message_.data());
    set(CURLOPT_USERAGENT, "lockstep");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_FAILONERROR, 1L);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(CURLOPT_MAXREDIRS, 5L);
    set(CURLOPT_SSL_VERIFYPEER, 1L);
    set(CURLOPT_SSL_VERIFYHOST, 2L);
    set(CURLOPT_CONNECTTIMEOUT, seconds(options_.connect_timeout));
    set(CURLOPT_LOW_SPEED_LIMIT, 1024L);
    set(CURLOPT_LOW_SPEED_TIME, seconds(options_.stall_timeout));
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_bytes);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
    set(CURLOPT_XFERINFODATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
  }

  static long seconds(std::chrono::seconds value) { return static_cast<long>(value.count()); }

  // libcurl, which is C, calls this, so it must not throw.
  static std::size_t on_bytes(const char* bytes, std::size_t, std::size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    try {
      transfer.receive({bytes, count});
      return count;
    } catch (const std::exception& error) {
      transfer.reason_ = error.what();
      return 0;
    }
  }

  static int on_progress(void* self, curl_off_t total, curl_off_t now, curl_off_t, curl_off_t) {
    static_cast<Transfer*>(self)->progress_.update(now, total);
    return 0;
  }

  void receive(std::span<const char> bytes) {
    received_ += static_cast<std::int64_t>(bytes.size());
    if (received_ > options_.max_bytes) {
      throw DataError("it sends more than the {} bytes that are allowed", options_.max_bytes);
    }
    digest_.update(bytes);
    file_.write({bytes.data(), bytes.size()});
  }

  const CurlLibrary& library_ = curl_library();
  const DownloadOptions& options_;
  const std::string& url_;
  AtomicFile file_;
  DownloadProgress progress_;
  const bool has_sha256_ = !options_.sha256.empty();
  Digest digest_{has_sha256_ ? Hash::kSha256 : Hash::kMd5};
  std::int64_t received_ = 0;
  std::array<char, CURL_ERROR_SIZE> message_{};
  std::optional<std::string> reason_;
};

}  // namespace

void download(const DownloadOptions& options) {
  curl_library();  // the error of a missing library is not that of a mirror
  Destination destination(options.path.parent_path());

  std::string failures;
  for (const std::string& url : options.urls) {
    try {
      Transfer(options, url).run();
      destination.keep();
      return;
    } catch (const Error& error) {  // of the mirror, or of writing the file
      failures += fmt::format("\n  {}: {}", url, error.what());
    }
  }
  throw DataError("{}: cannot be downloaded:{}{}{}", options.path.string(),
                  failures.empty() ? " no mirror was given" : failures,
                  options.advice.empty() ? "" : "\n", options.advice);
}

}  // namespace lockstep::data
