// Stands for an MLflow server: takes the requests of log/mlflow_run.h, on loopback.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <httplib.h>
#include <nlohmann/json.hpp>

class MlflowServer {
 public:
  using Json = nlohmann::json;

  MlflowServer() {
    server_.Get("/api/2.0/mlflow/experiments/get-by-name",
                [this](const httplib::Request& request, httplib::Response& response) {
                  const std::lock_guard lock(mutex_);
                  experiment_ = request.get_param_value("experiment_name");
                  if (known_) {
                    answer(response, {{"experiment", {{"experiment_id", "7"}}}});
                  } else {
                    refuse(response, 404, "RESOURCE_DOES_NOT_EXIST");
                  }
                });
    server_.Get("/api/2.0/mlflow/runs/get",
                [this](const httplib::Request& request, httplib::Response& response) {
                  const std::lock_guard lock(mutex_);
                  const std::string id = request.get_param_value("run_id");
                  if (!parameters_.contains(id)) {
                    return refuse(response, 404, "RESOURCE_DOES_NOT_EXIST");
                  }
                  Json params = Json::array();
                  for (const auto& [key, value] : parameters_[id]) {
                    params.push_back({{"key", key}, {"value", value}});
                  }
                  Json metrics = Json::array();
                  for (const auto& [key, step] : last_steps_[id]) {
                    metrics.push_back({{"key", key}, {"value", 0}, {"step", step}});
                  }
                  answer(response, {{"run",
                                     {{"info", {{"run_id", id}, {"artifact_uri", artifact_uri_}}},
                                      {"data", {{"params", params}, {"metrics", metrics}}}}}});
                });
    server_.Post(R"(/api/2\.0/mlflow/(.+))",
                 [this](const httplib::Request& request, httplib::Response& response) {
                   const std::lock_guard lock(mutex_);
                   post(request.matches[1], request, response);
                 });
    server_.Put(R"(/api/2\.0/mlflow-artifacts/artifacts/(.+))",
                [this](const httplib::Request& request, httplib::Response& response) {
                  const std::lock_guard lock(mutex_);
                  if (failing_ == "artifacts") return fail(response);
                  if (refused_ == "artifacts") return refuse(response, 400, "no");
                  artifacts_[request.matches[1]] = request.body;
                });
    server_.set_keep_alive_max_count(1);  // stop() waits for connections that are open
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    for (int i = 0; i < 5000 && !server_.is_running(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ~MlflowServer() {
    server_.stop();
    thread_.join();
  }
  MlflowServer(const MlflowServer&) = delete;
  MlflowServer& operator=(const MlflowServer&) = delete;

  std::string uri() const { return fmt::format("http://127.0.0.1:{}", port_); }
  httplib::Server& http() { return server_; }

  // What it was sent.
  std::string experiment() const { return locked(experiment_); }
  std::string authorization() const { return locked(authorization_); }
  std::vector<std::pair<std::string, Json>> calls() const { return locked(calls_); }
  std::map<std::string, std::string> artifacts() const { return locked(artifacts_); }
  // By the id of the run.
  std::map<std::string, std::string> parameters(const std::string& id) const {
    return locked(parameters_)[id];
  }
  std::string status(const std::string& id) const { return locked(statuses_)[id]; }
  // "train/loss 3" -> the last value of this metric with this step.
  std::map<std::string, Json> metrics() const {
    std::map<std::string, Json> found;
    for (const auto& [name, body] : calls()) {
      for (const Json& metric : body.value("metrics", Json::array())) {
        found[fmt::format("{} {}", metric["key"].get<std::string>(),
                          metric["step"].get<std::int64_t>())] = metric["value"];
      }
    }
    return found;
  }
  // The first request of this name; null if there is none.
  Json body_of(const std::string& name) const {
    for (const auto& [called, body] : calls()) {
      if (called == name) return body;
    }
    return {};
  }
  void forget_calls() {
    const std::lock_guard lock(mutex_);
    calls_.clear();
  }

  // How it behaves. A call is "runs/create" and so on, or "artifacts".
  void set_known(bool known) { set(known_, known); }                  // the experiment
  void set_failing(const std::string& call) { set(failing_, call); }  // answers 500
  void set_refused(const std::string& call) { set(refused_, call); }  // answers 400
  void set_failures(int count) { set(failures_, count); }             // the next ones are 503
  void set_artifact_uri(const std::string& uri) { set(artifact_uri_, uri); }

 private:
  template <typename T>
  T locked(const T& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }
  template <typename T>
  void set(T& member, const T& value) {
    const std::lock_guard lock(mutex_);
    member = value;
  }
  static void answer(httplib::Response& response, const Json& body) {
    response.set_content(body.dump(), "application/json");
  }
  static void refuse(httplib::Response& response, int status, const std::string& why) {
    response.status = status;
    response.set_content(Json({{"error_code", why}}).dump(), "application/json");
  }

  static void fail(httplib::Response& response) {
    response.status = 500;
    response.set_content("out of disk", "text/plain");
  }

  void post(const std::string& name, const httplib::Request& request, httplib::Response& response) {
    authorization_ = request.get_header_value("Authorization");
    if (request.get_header_value("Content-Type") != "application/json") {
      return refuse(response, 415, "expected JSON");
    }
    if (name == failing_) return fail(response);
    if (failures_ > 0) {
      failures_ -= 1;
      return refuse(response, 503, "TEMPORARILY_UNAVAILABLE");
    }
    const Json body = Json::parse(request.body);
    if (name == refused_) return refuse(response, 400, "INVALID_PARAMETER_VALUE");
    for (const Json& item : body.value("params", Json::array())) {
      const auto& known = parameters_[body["run_id"]];
      const auto found = known.find(item["key"]);
      const bool is_changed =
          found != known.end() && found->second != item["value"].get<std::string>();
      if (is_changed || item["key"] == "refused") {
        return refuse(response, 400, "INVALID_PARAMETER_VALUE");
      }
    }
    calls_.emplace_back(name, body);
    for (const Json& item : body.value("params", Json::array())) {
      parameters_[body["run_id"]][item["key"]] = item["value"];
    }
    for (const Json& item : body.value("metrics", Json::array())) {
      last_steps_[body["run_id"]][item["key"]] = item["step"];
    }
    if (name == "experiments/create") answer(response, {{"experiment_id", "8"}});
    if (name == "runs/update") statuses_[body["run_id"]] = body["status"];
    if (name != "runs/create") return;
    const std::string id = runs_ == 0 ? "abc" : fmt::format("abc{}", runs_);
    runs_ += 1;
    parameters_[id];
    statuses_[id] = "RUNNING";
    answer(response, {{"run", {{"info", {{"run_id", id}, {"artifact_uri", artifact_uri_}}}}}});
  }

  mutable std::mutex mutex_;  // for all members below, which both threads use
  bool known_ = true;
  int failures_ = 0;
  int runs_ = 0;
  std::string failing_;
  std::string refused_;
  std::string artifact_uri_ = "mlflow-artifacts:/7/abc/artifacts";
  std::string authorization_;
  std::string experiment_;
  std::vector<std::pair<std::string, Json>> calls_;
  std::map<std::string, std::string> artifacts_;
  std::map<std::string, std::map<std::string, std::string>> parameters_;
  std::map<std::string, std::string> statuses_;
  std::map<std::string, std::map<std::string, std::int64_t>> last_steps_;
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};
