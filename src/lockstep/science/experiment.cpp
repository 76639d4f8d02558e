#include "lockstep/science/experiment.h"

#include <chrono>
#include <functional>
#include <numeric>

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"
#include "lockstep/data/scaling.h"
#include "lockstep/science/pictures.h"
#include "lockstep/science/report.h"

namespace lockstep::science {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// All trackers of an experiment. A tracker that fails once is not used again: waiting for a server
// that does not answer would cost the whole time limit at each call.
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

// All targets of the loader, in its order.
torch::Tensor targets_of(const data::Loader& loader) {
  std::vector<torch::Tensor> rows;
  auto stream = loader.stream();
  while (auto batch = stream.next()) rows.push_back((*batch)["targets"].clone());
  if (rows.empty()) throw DataError("evaluation: the loader is empty");
  return torch::cat(rows);
}

// Rows as cubes [n, C, cube…]. Undefined if a row does not consist of whole cubes.
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

std::int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

// How many cubes make one field; 0 if they cannot fill it.
std::int64_t cubes_in(const Sizes& field, torch::IntArrayRef cube) {
  if (field.size() != cube.size()) return 0;
  for (std::size_t i = 0; i < cube.size(); ++i) {
    if (cube[i] < 1 || field[i] % cube[i] != 0) return 0;
  }
  return product(field) / product(cube.vec());
}

// All fields [n, C, N, …] that the cubes fill, one after the other.
torch::Tensor as_fields(const torch::Tensor& cubes, const Sizes& field) {
  const std::int64_t each = cubes_in(field, cubes.sizes().slice(2));
  std::vector<torch::Tensor> fields;
  for (std::int64_t first = 0; first < cubes.size(0); first += each) {
    fields.push_back(combine_cubes(cubes.narrow(0, first, each), field));
  }
  return torch::stack(fields);
}

// "64 x 64 x 128 points, sides 1 : 1 : 2 (equal spacing)"
std::string describe_box(const Sizes& points, const BoxLengths& box) {
  std::vector<std::string> sides;
  for (const double scale : wave_number_scales(points, box)) {
    sides.push_back(fmt::format("{:.4g}", 1 / scale));
  }
  return fmt::format("{} points, sides {} ({})", fmt::join(points, " x "), fmt::join(sides, " : "),
                     box.empty() ? "equal spacing" : "as given");
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
      pictures.push_back(cube_spectrum_picture(predict, target, experiment.box));
    } else {
      const torch::Tensor targets = as_fields(target, experiment.field);
      const torch::Tensor predictions = as_fields(predict, experiment.field);
      pictures.push_back(slice_picture(predictions[0], targets[0], experiment.range));
      pictures.push_back(spectrum_picture(predictions, targets, experiment.box));
    }
  }
  if (!experiment.estimator.history().empty()) {
    pictures.push_back(loss_picture(experiment.estimator.history()));
  }
  return pictures;
}

// "12 of 4,096", or "" if all values are finite.
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
  if (const torch::Tensor cubes = as_cubes(result.target, experiment.cube); cubes.defined()) {
    const bool whole = !experiment.field.empty();
    const Sizes points = whole ? experiment.field : cubes.sizes().slice(2).vec();
    report.facts.emplace_back(whole ? "field" : "cube", describe_box(points, experiment.box));
  }
  report.facts.insert(report.facts.begin(), experiment.facts.begin(), experiment.facts.end());
  for (const auto& [name, value] : experiment.estimator.parameters()) {
    report.parameters.emplace_back(
        name, std::visit([](const auto& held) { return fmt::format("{}", held); }, value));
  }
  return report;
}

}  // namespace

void check(const EvaluateExperiment& experiment) {
  const data::Loader& loader = experiment.loader;
  const std::int64_t samples = loader.samples();
  if (samples == 0) throw DataError("evaluation: the loader is empty");
  const torch::Tensor target = loader.dataset()->sample(0)["targets"];
  const torch::Tensor cube = as_cubes(target.unsqueeze(0), experiment.cube);
  if (!cube.defined()) {
    if (experiment.field.empty() && experiment.box.empty()) return;
    throw ConfigError(
        "evaluation: field and box need targets that are cubes; set cube to the sides of one");
  }
  const auto sides = cube.sizes().slice(2);
  wave_number_scales(sides, experiment.box);
  if (experiment.field.empty()) return;
  const std::int64_t each = cubes_in(experiment.field, sides);
  if (each == 0 || samples % each != 0) {
    throw DataError(
        "evaluation: {} cubes of [{}] do not fill fields of [{}]{}; pass a loader of every cube, "
        "in "
        "order (FieldData's all), or leave field out",
        samples, fmt::join(sides, ", "), fmt::join(experiment.field, ", "),
        each == 0 ? "" : fmt::format(", which have {} each", each));
  }
  if (loader.options().shuffle || loader.options().sampler) {
    throw ConfigError(
        "evaluation: cubes fill a field in their own order: expected a loader without shuffle and "
        "sampler, or no field");
  }
}

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
  check(experiment);
  Evaluation result;
  const data::ChannelScaling scaling = data::scaling_of(*experiment.loader.dataset()).targets;
  const torch::Tensor target = targets_of(experiment.loader).to(torch::kFloat32);
  result.target = scaling.undo(target);
  result.predict = experiment.estimator.predict(experiment.loader).reshape_as(target);
  if (!experiment.estimator.scales_back()) result.predict = scaling.undo(result.predict);
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
