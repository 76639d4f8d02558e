#include "lockstep/science/experiment.h"

#include <chrono>
#include <functional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"
#include "lockstep/science/pictures.h"
#include "lockstep/science/report.h"

namespace lockstep::science {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// All trackers of an experiment. One that fails once is not asked again: a server that is gone
// would cost its time limit each time.
class Tracking {
 public:
  explicit Tracking(const Trackers& trackers) : trackers_(trackers) {}

  void parameters(const HParams& parameters) {
    each([&](Tracker& tracker) { tracker.log_parameters(parameters); });
  }
  void metrics(const std::vector<TrackedMetric>& metrics) {
    each([&](Tracker& tracker) { tracker.log_metrics(metrics); });
  }
  void file(const std::string& name, const std::string& content) {
    each([&](Tracker& tracker) { tracker.log_artifact(name, content); });
  }
  void picture(const Picture& picture) {
    file(picture.name + ".svg", picture.report.svg);
    file(picture.name + ".csv", picture.csv);
  }

 private:
  void each(const std::function<void(Tracker&)>& work) {
    std::erase_if(trackers_, [&](const auto& tracker) {
      try {
        work(*tracker);
        return false;
      } catch (const std::exception& error) {
        warn(fmt::format("{}: nothing more of this experiment is tracked there: {}",
                         tracker->name(), error.what()));
        return true;
      }
    });
  }

  Trackers trackers_;
};

std::vector<TrackedMetric> losses(std::int64_t epoch, const EpochMetrics& metrics) {
  std::vector<TrackedMetric> tracked;
  for (const auto& [loader, values] : metrics) {
    const auto loss = values.find("loss");
    if (loss != values.end()) {
      tracked.push_back({.name = loader + " - loss", .value = loss->second, .step = epoch});
    }
  }
  return tracked;
}

// Targets as the loader has them, all of them, in its order.
torch::Tensor targets_of(const data::Loader& loader) {
  std::vector<torch::Tensor> rows;
  auto stream = loader.stream();
  while (auto batch = stream.next()) rows.push_back((*batch)["targets"].clone());
  if (rows.empty()) throw DataError("evaluation: the loader is empty");
  return torch::cat(rows);
}

// [n, C, cube…] of rows, where the elements make whole cubes; undefined where they do not.
torch::Tensor as_cubes(const torch::Tensor& rows, const Sizes& cube) {
  if (rows.dim() > 2) return rows;
  std::int64_t points = 1;
  for (const std::int64_t side : cube) points *= side;
  const std::int64_t elements = rows.numel() / rows.size(0);
  if (cube.empty() || elements % points != 0) return {};
  Sizes shape = {rows.size(0), elements / points};
  shape.insert(shape.end(), cube.begin(), cube.end());
  return rows.reshape(shape);
}

struct Compared {
  torch::Tensor predict, target;
};

std::vector<Picture> pictures_of(const EvaluateExperiment& experiment, const Compared& rows) {
  std::vector<Picture> pictures = {
      distribution_picture(rows.predict, rows.target, experiment.range)};
  const torch::Tensor target = as_cubes(rows.target, experiment.cube);
  if (target.defined()) {
    const torch::Tensor predict = as_cubes(rows.predict, experiment.cube);
    if (experiment.field.empty()) {
      pictures.push_back(slice_picture(predict[0], target[0], experiment.range));
      pictures.push_back(cube_spectrum_picture(predict, target));
    } else {
      const torch::Tensor whole_target = combine_cubes(target, experiment.field);
      const torch::Tensor whole_predict = combine_cubes(predict, experiment.field);
      pictures.push_back(slice_picture(whole_predict, whole_target, experiment.range));
      pictures.push_back(spectrum_picture(whole_predict, whole_target));
    }
  }
  if (!experiment.estimator.history().empty()) {
    pictures.push_back(loss_picture(experiment.estimator.history()));
  }
  return pictures;
}

// "12 of 4,096", or "" where there are none.
std::string count_not_finite(const torch::Tensor& values) {
  const auto count = torch::isfinite(values).logical_not().sum().item<std::int64_t>();
  return count == 0
             ? ""
             : fmt::format("{} of {}", with_thousands(count), with_thousands(values.numel()));
}

ReportContent report_of(const EvaluateExperiment& experiment, const Evaluation& result) {
  const double below = 100 * (1 - result.mse / result.mse_of_mean);
  ReportContent report{
      .title = experiment.title,
      .summary = fmt::format(
          "{} on {} samples: its mean square error is {:.1f} % {} that of predicting the mean "
          "everywhere.",
          experiment.estimator.name(), with_thousands(result.target.size(0)), std::abs(below),
          below < 0 ? "above" : "below"),
      .facts = {{"mean square error", fmt::format("{:.5g}", result.mse)},
                {"of predicting the mean", fmt::format("{:.5g}", result.mse_of_mean)},
                {"Kolmogorov-Smirnov statistic", fmt::format("{:.4f}", result.ks)},
                {"samples", with_thousands(result.target.size(0))},
                {"seconds", fmt::format("{:.2f}", result.seconds)}},
      .parameters = {},
      .pictures = {}};
  for (const auto& [what, values] :
       {std::pair("predictions", result.predict), std::pair("targets", result.target)}) {
    if (const std::string count = count_not_finite(values); !count.empty()) {
      report.facts.emplace_back(fmt::format("{} that are not finite", what), count);
    }
  }
  report.facts.insert(report.facts.begin(), experiment.facts.begin(), experiment.facts.end());
  for (const auto& [name, value] : experiment.estimator.parameters()) {
    report.parameters.emplace_back(
        name, std::visit([](const auto& held) { return fmt::format("{}", held); }, value));
  }
  return report;
}

}  // namespace

void run(const TrainExperiment& experiment) {
  const auto start = Clock::now();
  Tracking tracking(experiment.trackers);
  HParams parameters;
  for (const auto& [name, value] : experiment.estimator.parameters()) {
    parameters["model - " + name] = value;
  }
  tracking.parameters(parameters);
  experiment.estimator.train(experiment.loaders,
                             [&](std::int64_t epoch, const EpochMetrics& metrics) {
                               tracking.metrics(losses(epoch, metrics));
                             });
  tracking.metrics({{.name = "train - runtime", .value = seconds_since(start)}});
  if (const std::string details = experiment.estimator.describe(); !details.empty()) {
    tracking.file("model_details.txt", details);
  }
  tracking.picture(loss_picture(experiment.estimator.history()));
}

Evaluation run(const EvaluateExperiment& experiment) {
  const auto start = Clock::now();
  Evaluation result;
  result.target = targets_of(experiment.loader).to(torch::kFloat32);
  result.predict = experiment.estimator.predict(experiment.loader).reshape_as(result.target);
  for (const auto& [what, values] :
       {std::pair("prediction", result.predict), std::pair("target", result.target)}) {
    if (!torch::isfinite(values).any().item<bool>()) {
      throw DataError("evaluation: no {} of {} is a finite number", what,
                      experiment.estimator.name());
    }
  }
  result.ks = ks_statistic(result.predict, result.target);
  const torch::Tensor t = result.target.to(torch::kFloat64);
  result.mse = (result.predict.to(torch::kFloat64) - t).square().mean().item<double>();
  result.mse_of_mean = t.var(false).item<double>();
  const auto pictures =
      pictures_of(experiment, {.predict = result.predict, .target = result.target});
  result.seconds = seconds_since(start);

  Tracking tracking(experiment.trackers);
  tracking.metrics({{.name = "eval - KS Stat", .value = result.ks},
                    {.name = "eval - MSE Loss", .value = result.mse},
                    {.name = "eval - runtime", .value = result.seconds}});
  ReportContent report = report_of(experiment, result);
  for (const Picture& picture : pictures) {
    tracking.picture(picture);
    report.pictures.push_back(picture.report);
  }
  tracking.file("report.html", to_html(report));
  return result;
}

}  // namespace lockstep::science
