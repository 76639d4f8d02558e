#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>

#include <curl/curl.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/process/environment.h"
#include "lockstep/science/tracker.h"

namespace lockstep::science {
namespace {

using nlohmann::json;

struct Answer {
  long status = 0;
  std::string body;
};

std::size_t collect(char* bytes, std::size_t size, std::size_t count, void* target) {
  static_cast<std::string*>(target)->append(bytes, size * count);
  return size * count;
}

struct HttpRequest {
  std::string method;
  std::string path;
  std::string body = {};
  std::string type = "application/json";
};

std::string escaped(const std::string& text) {
  const std::unique_ptr<char, decltype(&curl_free)> made(
      curl_easy_escape(nullptr, text.c_str(), static_cast<int>(text.size())), curl_free);
  return made.get();
}

std::string unescaped(const std::string& text) {
  int size = 0;
  const std::unique_ptr<char, decltype(&curl_free)> made(
      curl_easy_unescape(nullptr, text.c_str(), static_cast<int>(text.size()), &size), curl_free);
  return {made.get(), static_cast<std::size_t>(size)};
}

std::int64_t now_in_milliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// MLflow allows letters, digits and - _ . / and spaces in a name.
std::string safe_name(const std::string& name) {
  std::string safe = name;
  for (char& c : safe) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) == 0 && std::string_view("-_./ ").find(c) == std::string_view::npos)
      c = '_';
  }
  return safe;
}

// JSON has no NaN; MLflow takes it as text.
json number(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

std::optional<std::string> or_variable(const std::optional<std::string>& given, const char* name) {
  if (given) return given;
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

// Moves the user and password of "http://user:secret@host/" into the options, so that messages show
// only "http://host".
void take_user_from_uri(MlflowOptions& options) {
  while (options.uri.ends_with('/')) options.uri.pop_back();
  const auto begin = options.uri.find("://");
  if (begin == std::string::npos) return;
  const auto host = options.uri.find('@', begin);
  if (host == std::string::npos || host > options.uri.find('/', begin + 3)) return;
  const std::string user = options.uri.substr(begin + 3, host - begin - 3);
  options.uri.erase(begin + 3, host - begin - 2);
  const auto colon = user.find(':');
  options.username = unescaped(user.substr(0, colon));
  if (colon != std::string::npos) options.password = unescaped(user.substr(colon + 1));
}

// "7/run/artifacts" for "mlflow-artifacts:/7/run/artifacts", which may also contain a host. Nothing
// if artifacts are kept in a place that the proxy does not reach, such as the server's disk or a
// cloud.
std::optional<std::string> proxied(const std::string& uri) {
  const std::string scheme = "mlflow-artifacts:";
  if (!uri.starts_with(scheme)) return std::nullopt;
  std::string path = uri.substr(scheme.size());
  if (path.starts_with("//")) path = path.substr(std::min(path.find('/', 2), path.size()));
  path.erase(0, path.find_first_not_of('/'));
  return path;
}

}  // namespace

// One connection, which stays open between calls.
class MlflowTracker::Server {
 public:
  explicit Server(MlflowOptions options)
      : options_(std::move(options)), curl_((initialize(), curl_easy_init()), curl_easy_cleanup) {
    take_user_from_uri(options_);
    options_.token = or_variable(options_.token, "MLFLOW_TRACKING_TOKEN");
    options_.username = or_variable(options_.username, "MLFLOW_TRACKING_USERNAME");
    options_.password = or_variable(options_.password, "MLFLOW_TRACKING_PASSWORD");
  }

  const MlflowOptions& options() const { return options_; }

  Answer send(const HttpRequest& request) {
    CURL* const curl = curl_.get();
    curl_easy_reset(curl);
    const std::string url = options_.uri + request.path;
    const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
        curl_slist_append(nullptr, ("Content-Type: " + request.type).c_str()), curl_slist_free_all);
    Answer answer;
    curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer.body);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(options_.timeout * 1000));
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    if (options_.token) {
      curl_easy_setopt(curl, CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
      curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, options_.token->c_str());
    } else if (options_.username) {
      curl_easy_setopt(curl, CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BASIC));
      curl_easy_setopt(curl, CURLOPT_USERNAME, options_.username->c_str());
      curl_easy_setopt(curl, CURLOPT_PASSWORD, options_.password.value_or("").c_str());
    }
    if (request.method != "GET") {
      curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.data());
      curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
                       static_cast<curl_off_t>(request.body.size()));
    }
    if (const CURLcode code = curl_easy_perform(curl); code != CURLE_OK) {
      throw Error("MLflow at {}: {}", url, curl_easy_strerror(code));
    }
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.status);
    return answer;
  }

  [[noreturn]] void refuse(const std::string& path, const Answer& answer) const {
    constexpr std::size_t kLongest = 300;
    throw Error("MLflow at {}{}: answers {}: {}", options_.uri, path, answer.status,
                answer.body.substr(0, kLongest));
  }

  // The result of `read` for the parsed answer. If the answer is not what MLflow sends, throws an
  // error that shows the answer.
  template <typename F>
  auto parsed(const std::string& path, const Answer& answer, const F& read) const {
    try {
      return read(json::parse(answer.body.empty() ? "{}" : answer.body));
    } catch (const json::exception&) {
      refuse(path, answer);
    }
  }

  template <typename F>
  auto call(const std::string& name, const json& body, const F& read) {
    const std::string path = "/api/2.0/mlflow/" + name;
    const Answer answer = send({.method = "POST", .path = path, .body = body.dump()});
    if (answer.status != 200) refuse(path, answer);
    return parsed(path, answer, read);
  }

  void call(const std::string& name, const json& body) {
    call(name, body, [](const json&) { return 0; });
  }

  std::string experiment_id() {
    const std::string path =
        "/api/2.0/mlflow/experiments/get-by-name?experiment_name=" + escaped(options_.experiment);
    const Answer answer = send({.method = "GET", .path = path});
    if (answer.status == 200) {
      return parsed(path, answer, [](const json& found) {
        return found.at("experiment").at("experiment_id").get<std::string>();
      });
    }
    if (answer.status != 404) refuse(path, answer);
    return call("experiments/create", {{"name", options_.experiment}},
                [](const json& made) { return made.at("experiment_id").get<std::string>(); });
  }

 private:
  static void initialize() {
    static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
    (void)ready;
  }

  MlflowOptions options_;
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl_;
};

MlflowTracker::MlflowTracker(MlflowOptions options) {
  if (!process::is_primary_process()) return;
  server_ = std::make_unique<Server>(std::move(options));
  const MlflowOptions& asked = server_->options();
  json tags = json::array({{{"key", "mlflow.runName"}, {"value", asked.run_name}}});
  if (asked.parent_run_id) {
    tags.push_back({{"key", "mlflow.parentRunId"}, {"value", *asked.parent_run_id}});
  }
  const std::string experiment = server_->experiment_id();
  std::string artifact_uri;
  server_->call("runs/create",
                {{"experiment_id", experiment},
                 {"run_name", asked.run_name},
                 {"start_time", now_in_milliseconds()},
                 {"tags", tags}},
                [&](const json& started) {
                  const json& info = started.at("run").at("info");
                  run_id_ = info.at("run_id").get<std::string>();
                  artifact_uri = info.value("artifact_uri", "");
                  return 0;
                });
  artifacts_ = proxied(artifact_uri);
  if (!artifacts_) {
    warn(
        fmt::format("{}: keeps artifacts at '{}', which its proxy does not reach: pictures and the "
                    "report are not sent; start the server with --serve-artifacts",
                    name(), artifact_uri));
  }
}

MlflowTracker::~MlflowTracker() {
  if (ended_ || server_ == nullptr) return;
  try {
    end("FAILED");
  } catch (const std::exception& error) {
    warn(error.what());
  }
}

std::string MlflowTracker::name() const {
  return server_ == nullptr ? "MLflow" : "MLflow at " + server_->options().uri;
}

void MlflowTracker::log_parameters(const HParams& parameters) {
  if (server_ == nullptr) return;
  constexpr std::size_t kMost = 100;  // MLflow's limit for one batch
  json batch = json::array();
  const auto send = [&] {
    if (!batch.empty()) server_->call("runs/log-batch", {{"run_id", run_id_}, {"params", batch}});
    batch = json::array();
  };
  for (const auto& [name, value] : parameters) {
    batch.push_back(
        {{"key", safe_name(name)},
         {"value", std::visit([](const auto& held) { return fmt::format("{}", held); }, value)}});
    if (batch.size() == kMost) send();
  }
  send();
}

void MlflowTracker::log_metrics(const std::vector<TrackedMetric>& metrics) {
  if (server_ == nullptr) return;
  constexpr std::size_t kMost = 1000;
  for (std::size_t begin = 0; begin < metrics.size(); begin += kMost) {
    json batch = json::array();
    for (std::size_t i = begin; i < std::min(metrics.size(), begin + kMost); ++i) {
      batch.push_back({{"key", safe_name(metrics[i].name)},
                       {"value", number(metrics[i].value)},
                       {"timestamp", now_in_milliseconds()},
                       {"step", metrics[i].step}});
    }
    server_->call("runs/log-batch", {{"run_id", run_id_}, {"metrics", batch}});
  }
}

void MlflowTracker::log_artifact(const std::string& name, const std::string& content) {
  if (server_ == nullptr || !artifacts_) return;
  const std::string path =
      fmt::format("/api/2.0/mlflow-artifacts/artifacts/{}/{}", *artifacts_, escaped(name));
  const Answer answer = server_->send(
      {.method = "PUT", .path = path, .body = content, .type = "application/octet-stream"});
  if (answer.status != 200) server_->refuse(path, answer);
}

void MlflowTracker::end(const char* status) {
  ended_ = true;
  server_->call("runs/update",
                {{"run_id", run_id_}, {"status", status}, {"end_time", now_in_milliseconds()}});
}

void MlflowTracker::finish() {
  if (!ended_ && server_ != nullptr) end("FINISHED");
}

}  // namespace lockstep::science
