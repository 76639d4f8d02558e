#include "lockstep/log/mlflow_run.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"
#include "lockstep/http/client.h"
#include "lockstep/http/url.h"

namespace lockstep {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kMostTries = 4;
constexpr std::chrono::milliseconds kFirstPause(150);
constexpr const char* kApi = "/api/2.0/mlflow/";

// JSON has no NaN; MLflow takes it as text.
json number(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
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

// At most `most` bytes, without a part of a character at the end.
std::string cut(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
  text.resize(most);
  return text;
}

// The server may answer another time: it is busy, or it has an error of its own.
bool may_pass(long status) {
  return status == 429 || status >= 500;
}

}  // namespace

std::int64_t now_in_milliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

MlflowOptions with_environment(MlflowOptions options, const process::Environment& environment) {
  const auto variable = [&](const char* name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
  const auto or_variable = [&](std::optional<std::string>& value, const char* name) {
    if (!value) value = variable(name);
  };
  const bool is_given = !options.uri.empty();
  if (!is_given) options.uri = variable("MLFLOW_TRACKING_URI").value_or("");
  http::Address address = http::split_address(options.uri);
  if (!address.url.starts_with("http://") && !address.url.starts_with("https://")) {
    throw ConfigError("{}: expected the address of an MLflow server, 'http://host:5000', got '{}'",
                      is_given ? "MLflow: uri" : "MLFLOW_TRACKING_URI", address.url);
  }
  options.uri = std::move(address.url);
  if (address.username) {
    options.username = address.username;
    options.password = address.password;
  }
  or_variable(options.token, "MLFLOW_TRACKING_TOKEN");
  or_variable(options.username, "MLFLOW_TRACKING_USERNAME");
  or_variable(options.password, "MLFLOW_TRACKING_PASSWORD");
  or_variable(options.run_id, "MLFLOW_RUN_ID");
  or_variable(options.run_name, "MLFLOW_RUN_NAME");
  or_variable(options.experiment, "MLFLOW_EXPERIMENT_NAME");
  if (!options.experiment) options.experiment = "lockstep";
  return options;
}

class MlflowRun::Server {
 public:
  explicit Server(const MlflowOptions& options)
      : uri_(options.uri),
        login_{.token = options.token, .username = options.username, .password = options.password},
        timeout_(options.timeout) {}

  http::Answer send(http::Request request, int most_tries = kMostTries) {
    const std::string path = request.url;
    request.url = uri_ + path;
    request.login = login_;
    request.timeout = timeout_;
    const auto began = Clock::now();
    auto pause = kFirstPause;
    for (int tries = 1;; ++tries, pause *= 2) {
      const auto is_last = [&] {
        return tries >= most_tries ||
               Clock::now() - began > std::chrono::duration<double>(timeout_);
      };
      try {
        http::Answer answer = client_.send(request);
        if (!may_pass(answer.status)) return answer;
        if (is_last()) throw Error(describe(path, answer));
      } catch (const http::NoAnswer& error) {
        if (is_last()) throw Error("MLflow at {}", error.what());
      }
      std::this_thread::sleep_for(pause);
    }
  }

  std::string describe(const std::string& path, const http::Answer& answer) const {
    constexpr std::size_t kLongest = 300;
    return fmt::format("MLflow at {}{}: answers {}: {}", uri_, path, answer.status,
                       excerpt(answer.body, kLongest));
  }

  // The result of `read` for the parsed answer. If the answer is not what MLflow sends, throws an
  // error that shows the answer.
  template <typename F>
  auto parsed(const std::string& path, const http::Answer& answer, const F& read) const {
    if (answer.status != 200) throw MlflowRefusal(describe(path, answer));
    try {
      return read(json::parse(answer.body.empty() ? "{}" : answer.body));
    } catch (const json::exception&) {
      throw MlflowRefusal(describe(path, answer));
    }
  }

  template <typename F>
  auto call(const std::string& name, const json& body, const F& read, int most_tries = kMostTries) {
    const std::string path = kApi + name;
    const std::string text = body.dump(-1, ' ', false, json::error_handler_t::replace);
    return parsed(path, send({.method = "POST", .url = path, .body = text}, most_tries), read);
  }

  void call(const std::string& name, const json& body) {
    call(name, body, [](const json&) { return 0; });
  }

  template <typename F>
  auto get(const std::string& path, const F& read) {
    return parsed(path, send({.url = path}), read);
  }

  std::string experiment_id(const std::string& name) {
    const std::string path =
        fmt::format("{}experiments/get-by-name?experiment_name={}", kApi, http::escaped(name));
    const http::Answer answer = send({.url = path});
    if (answer.status != 404) {
      return parsed(path, answer, [](const json& found) {
        return found.at("experiment").at("experiment_id").get<std::string>();
      });
    }
    return call("experiments/create", {{"name", name}},
                [](const json& made) { return made.at("experiment_id").get<std::string>(); });
  }

 private:
  std::string uri_;
  http::Login login_;
  double timeout_;
  http::Client client_;
};

MlflowRun::MlflowRun(const MlflowOptions& options)
    : server_(std::make_unique<Server>(options)), uri_(options.uri) {
  if (options.run_id) {
    go_on(*options.run_id);
  } else {
    start(options);
  }
}

MlflowRun::~MlflowRun() = default;

void MlflowRun::start(const MlflowOptions& options) {
  json tags = json::array({{{"key", "mlflow.source.type"}, {"value", "LOCAL"}},
                           {{"key", "mlflow.source.name"}, {"value", program_invocation_name}}});
  if (options.parent_run_id) {
    tags.push_back({{"key", "mlflow.parentRunId"}, {"value", *options.parent_run_id}});
  }
  json body = {{"experiment_id", server_->experiment_id(options.experiment.value_or("lockstep"))},
               {"start_time", now_in_milliseconds()}};
  if (options.run_name) {
    body["run_name"] = *options.run_name;
    tags.push_back({{"key", "mlflow.runName"}, {"value", *options.run_name}});
  }
  body["tags"] = tags;
  // Once only: if an answer is lost, a second request would make a second run.
  constexpr int kOnce = 1;
  server_->call(
      "runs/create", body,
      [this](const json& started) {
        const json& info = started.at("run").at("info");
        id_ = info.at("run_id").get<std::string>();
        take_artifact_uri(info.value("artifact_uri", ""));
        return 0;
      },
      kOnce);
}

void MlflowRun::go_on(const std::string& id) {
  id_ = id;
  server_->get(
      fmt::format("{}runs/get?run_id={}", kApi, http::escaped(id)), [this](const json& found) {
        const json& run = found.at("run");
        take_artifact_uri(run.at("info").value("artifact_uri", ""));
        const json data = run.value("data", json::object());
        for (const json& item : data.value("params", json::array())) {
          parameters_[item.at("key").get<std::string>()] = item.at("value").get<std::string>();
        }
        for (const json& item : data.value("metrics", json::array())) {
          last_steps_[item.at("key").get<std::string>()] = item.value("step", std::int64_t{0});
        }
        return 0;
      });
  server_->call("runs/update", {{"run_id", id_}, {"status", "RUNNING"}});
}

void MlflowRun::take_artifact_uri(const std::string& uri) {
  artifacts_ = proxied(uri);
  if (artifacts_) return;
  warn(
      fmt::format("MLflow at {}: keeps artifacts at '{}', which its proxy does not reach: files "
                  "and images are not sent; start the server with --serve-artifacts",
                  uri_, uri));
}

void MlflowRun::log_parameters(const HParams& parameters) {
  constexpr std::size_t kMost = 100;  // MLflow's limit for one request
  constexpr std::size_t kLongestValue = 6000;
  std::vector<std::string> shortened;
  std::vector<std::string> refused;
  json batch = json::array();
  const auto send = [&] {
    if (batch.empty()) return;
    try {
      server_->call("runs/log-batch", {{"run_id", id_}, {"params", batch}});
    } catch (const MlflowRefusal&) {
      // It refuses all if it refuses one.
      for (const json& item : batch) {
        try {
          server_->call("runs/log-batch", {{"run_id", id_}, {"params", json::array({item})}});
        } catch (const MlflowRefusal&) {
          refused.push_back(item["key"].get<std::string>());
        }
      }
    }
    batch = json::array();
  };
  for (const auto& [name, held] : parameters) {
    const std::string all =
        std::visit([](const auto& value) { return fmt::format("{}", value); }, held);
    const std::string value = cut(all, kLongestValue);
    if (value.size() < all.size()) shortened.push_back(name);
    const std::string& key = parameter_names_.accepted(name);
    const auto known = parameters_.find(key);
    if (known != parameters_.end()) {
      if (known->second != value) refused.push_back(name);
      continue;
    }
    batch.push_back({{"key", key}, {"value", value}});
    if (batch.size() == kMost) send();
  }
  send();
  if (!shortened.empty()) {
    warn(fmt::format("MLflow takes at most {} bytes of a parameter: these were cut: {}",
                     with_thousands(kLongestValue), list_some(shortened)));
  }
  if (!refused.empty()) {
    warn(fmt::format(
        "MLflow at {}: did not take these parameters, because the run has other values of them, or "
        "because they are too long: {}",
        uri_, list_some(refused)));
  }
}

std::optional<std::int64_t> MlflowRun::last_step(const std::string& metric) {
  const auto found = last_steps_.find(metric_names_.accepted(metric));
  return found != last_steps_.end() ? std::optional(found->second) : std::nullopt;
}

void MlflowRun::log_metrics(std::span<const MlflowMetric> metrics) {
  for (std::size_t begin = 0; begin < metrics.size(); begin += kMostMetrics) {
    json batch = json::array();
    for (const MlflowMetric& metric :
         metrics.subspan(begin, std::min(kMostMetrics, metrics.size() - begin))) {
      batch.push_back({{"key", metric_names_.accepted(metric.name)},
                       {"value", number(metric.value)},
                       {"timestamp", metric.time},
                       {"step", metric.step}});
    }
    server_->call("runs/log-batch", {{"run_id", id_}, {"metrics", batch}});
  }
}

void MlflowRun::log_artifact(const Artifact& artifact) {
  if (!artifacts_) return;
  const std::string path =
      fmt::format("/api/2.0/mlflow-artifacts/artifacts/{}/{}", http::escaped_path(*artifacts_),
                  http::escaped_path(artifact_name(artifact)));
  const http::Answer answer = server_->send({.method = "PUT",
                                             .url = path,
                                             .body = artifact.content,
                                             .file = artifact.path,
                                             .content_type = "application/octet-stream"});
  if (answer.status != 200) throw MlflowRefusal(server_->describe(path, answer));
}

void MlflowRun::end(const char* status) {
  server_->call("runs/update",
                {{"run_id", id_}, {"status", status}, {"end_time", now_in_milliseconds()}});
}

}  // namespace lockstep
