#include <chrono>
#include <cmath>
#include <memory>

#include <curl/curl.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
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

struct Request {
  std::string method;
  std::string path;
  std::string body = {};
  std::string type = "application/json";
};

Answer send(const MlflowOptions& options, const Request& request) {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  (void)ready;
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 curl_easy_cleanup);
  const std::string url = options.uri + request.path;
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
      curl_slist_append(nullptr, ("Content-Type: " + request.type).c_str()), curl_slist_free_all);
  Answer answer;
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_CUSTOMREQUEST, request.method.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, collect);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &answer.body);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, static_cast<long>(options.timeout * 1000));
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  if (request.method != "GET") {
    curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, request.body.data());
    curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.body.size()));
  }
  if (const CURLcode code = curl_easy_perform(curl.get()); code != CURLE_OK) {
    throw Error("MLflow at {}: {}", url, curl_easy_strerror(code));
  }
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &answer.status);
  return answer;
}

[[noreturn]] void refuse(const MlflowOptions& options, const std::string& path,
                         const Answer& answer) {
  constexpr std::size_t kLongest = 300;
  throw Error("MLflow at {}{}: answers {}: {}", options.uri, path, answer.status,
              answer.body.substr(0, kLongest));
}

json call(const MlflowOptions& options, const std::string& name, const json& body) {
  const std::string path = "/api/2.0/mlflow/" + name;
  const Answer answer = send(options, {.method = "POST", .path = path, .body = body.dump()});
  if (answer.status != 200) refuse(options, path, answer);
  try {
    return json::parse(answer.body.empty() ? "{}" : answer.body);
  } catch (const json::exception&) {
    refuse(options, path, answer);
  }
}

std::string escaped(const std::string& text) {
  const std::unique_ptr<char, decltype(&curl_free)> made(
      curl_easy_escape(nullptr, text.c_str(), static_cast<int>(text.size())), curl_free);
  return made.get();
}

std::int64_t now_in_milliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string experiment_of(const MlflowOptions& options) {
  const std::string path =
      "/api/2.0/mlflow/experiments/get-by-name?experiment_name=" + escaped(options.experiment);
  const Answer answer = send(options, {.method = "GET", .path = path});
  if (answer.status == 200) {
    const json found = json::parse(answer.body, nullptr, false);
    if (!found.is_discarded() && found.contains("experiment")) {
      return found["experiment"].at("experiment_id").get<std::string>();
    }
  }
  if (answer.status != 404) refuse(options, path, answer);
  return call(options, "experiments/create", {{"name", options.experiment}})
      .at("experiment_id")
      .get<std::string>();
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

}  // namespace

MlflowTracker::MlflowTracker(MlflowOptions options) : options_(std::move(options)) {
  while (options_.uri.ends_with('/')) options_.uri.pop_back();
  experiment_id_ = experiment_of(options_);
  const json started =
      call(options_, "runs/create",
           {{"experiment_id", experiment_id_},
            {"run_name", options_.run_name},
            {"start_time", now_in_milliseconds()},
            {"tags", json::array({{{"key", "mlflow.runName"}, {"value", options_.run_name}}})}});
  run_id_ = started.at("run").at("info").at("run_id").get<std::string>();
}

MlflowTracker::~MlflowTracker() {
  if (ended_) return;
  try {
    end("FAILED");
  } catch (const std::exception& error) {
    warn(error.what());
  }
}

void MlflowTracker::log_parameter(const std::string& name, const HParam& value) {
  const std::string text =
      std::visit([](const auto& held) -> std::string { return fmt::format("{}", held); }, value);
  call(options_, "runs/log-parameter",
       {{"run_id", run_id_}, {"key", safe_name(name)}, {"value", text}});
}

void MlflowTracker::log_metric(const std::string& name, double value, std::int64_t step) {
  // JSON has no NaN; MLflow takes it as text.
  const json number = std::isfinite(value) ? json(value)
                      : std::isnan(value)  ? json("NaN")
                                           : json(value > 0 ? "Infinity" : "-Infinity");
  call(options_, "runs/log-metric",
       {{"run_id", run_id_},
        {"key", safe_name(name)},
        {"value", number},
        {"timestamp", now_in_milliseconds()},
        {"step", step}});
}

void MlflowTracker::log_artifact(const std::string& name, const std::string& content) {
  const std::string path = fmt::format("/api/2.0/mlflow-artifacts/artifacts/{}/{}/artifacts/{}",
                                       experiment_id_, run_id_, escaped(name));
  const Answer answer =
      send(options_,
           {.method = "PUT", .path = path, .body = content, .type = "application/octet-stream"});
  if (answer.status != 200) refuse(options_, path, answer);
}

void MlflowTracker::end(const char* status) {
  ended_ = true;
  call(options_, "runs/update",
       {{"run_id", run_id_}, {"status", status}, {"end_time", now_in_milliseconds()}});
}

void MlflowTracker::finish() {
  if (!ended_) end("FINISHED");
}

}  // namespace lockstep::science
