#include "lockstep/science/experiment.h"

#include <chrono>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/science/plot.h"
#include "lockstep/science/report.h"
#include "lockstep/science/spectrum.h"
#include "lockstep/science/statistics.h"

namespace lockstep::science {
namespace {

using Clock = std::chrono::steady_clock;

void track(const Trackers& trackers, const std::function<void(Tracker&)>& work) {
  for (const auto& tracker : trackers) work(*tracker);
}

void track_metric(const Trackers& trackers, const std::string& name, double value,
                  std::int64_t step = 0) {
  track(trackers, [&](Tracker& tracker) { tracker.log_metric(name, value, step); });
}

void track_file(const Trackers& trackers, const std::string& name, const std::string& content) {
  track(trackers, [&](Tracker& tracker) { tracker.log_artifact(name, content); });
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Columns of a table; shorter ones end earlier.
std::string to_csv(const std::vector<std::pair<std::string, std::vector<double>>>& columns) {
  std::string csv;
  std::size_t rows = 0;
  for (const auto& [name, values] : columns) {
    csv += (csv.empty() ? "" : ",") + name;
    rows = std::max(rows, values.size());
  }
  csv += "\n";
  for (std::size_t row = 0; row < rows; ++row) {
    bool first = true;
    for (const auto& [name, values] : columns) {
      if (!first) csv += ",";
      first = false;
      if (row < values.size()) csv += fmt::format("{}", values[row]);
    }
    csv += "\n";
  }
  return csv;
}

std::vector<double> middles(const std::vector<double>& edges) {
  std::vector<double> centers;
  for (std::size_t i = 0; i + 1 < edges.size(); ++i)
    centers.push_back((edges[i] + edges[i + 1]) / 2);
  return centers;
}

// The loss of every loader over the epochs.
std::vector<Line> loss_lines(const std::map<std::int64_t, EpochMetrics>& history) {
  std::vector<Line> lines;
  for (const auto& [epoch, loaders] : history) {
    for (const auto& [loader, metrics] : loaders) {
      const auto loss = metrics.find("loss");
      if (loss == metrics.end()) continue;
      auto line = std::ranges::find(lines, loader, &Line::label);
      if (line == lines.end())
        line = lines.insert(lines.end(), Line{.label = loader, .x = {}, .y = {}});
      line->x.push_back(static_cast<double>(epoch));
      line->y.push_back(loss->second);
    }
  }
  return lines;
}

std::string loss_picture(const std::vector<Line>& lines) {
  return to_svg({LinePlot{
      .title = "Loss", .x_label = "epoch", .y_label = "loss", .lines = lines, .log_y = true}});
}

// What one picture and its table are made of.
struct Picture {
  std::string name;
  ReportPicture report;
  std::string csv;
};

Picture distribution_picture(const torch::Tensor& predict, const torch::Tensor& target, double ks) {
  const Range range = range_of(predict, target);
  const Histogram p = histogram(predict, range), t = histogram(target, range);
  const Cdf pc = cumulative(predict), tc = cumulative(target);
  return {
      .name = "pdf_cdf",
      .report = {.title = "Distribution of values",
                 .text = fmt::format("Left, how dense values are; right, the part of them up to a "
                                     "value. The largest distance between the two curves on the "
                                     "right is the Kolmogorov-Smirnov statistic, {:.4f}.",
                                     ks),
                 .svg = to_svg({LinePlot{.title = "PDF",
                                         .x_label = "value",
                                         .y_label = "density",
                                         .lines = {{"target", middles(t.edge), t.density},
                                                   {"predicted", middles(p.edge), p.density, true}},
                                         .log_y = true},
                                LinePlot{.title = "CDF",
                                         .x_label = "value",
                                         .y_label = "fraction",
                                         .lines = {{"target", tc.value, tc.fraction},
                                                   {"predicted", pc.value, pc.fraction, true}}}})},
      .csv = to_csv({{"value", middles(t.edge)},
                     {"target_pdf", t.density},
                     {"predicted_pdf", p.density},
                     {"target_value", tc.value},
                     {"target_cdf", tc.fraction},
                     {"predicted_value", pc.value},
                     {"predicted_cdf", pc.fraction}})};
}

// The mean spectrum of some cubes [n, C, …].
Spectrum mean_spectrum(const torch::Tensor& cubes) {
  constexpr std::int64_t kMost = 64;
  const std::int64_t count = std::min(kMost, cubes.size(0));
  Spectrum sum;
  for (std::int64_t i = 0; i < count; ++i) {
    const Spectrum one = power_spectrum(cubes[i], true);
    if (sum.energy.empty()) {
      sum = one;
    } else {
      for (std::size_t k = 0; k < sum.energy.size(); ++k) sum.energy[k] += one.energy[k];
    }
  }
  for (double& energy : sum.energy) energy /= static_cast<double>(count);
  return sum;
}

Picture spectrum_picture(const torch::Tensor& predict, const torch::Tensor& target) {
  const Spectrum t = mean_spectrum(target), p = mean_spectrum(predict);
  const auto line = kolmogorov_line(t);
  return {
      .name = "spectrum",
      .report = {.title = "Power spectrum",
                 .text =
                     "How much energy each scale has: large scales on the left, small ones on the "
                     "right. The dashed line falls as k^(-5/3), as in Kolmogorov's turbulence.",
                 .svg = to_svg({LinePlot{.title = "Power spectrum",
                                         .x_label = "wave number k",
                                         .y_label = "E(k)",
                                         .lines = {{"target", t.wave_number, t.energy},
                                                   {"predicted", p.wave_number, p.energy},
                                                   {"k^(-5/3)", t.wave_number, line, true}},
                                         .log_x = true,
                                         .log_y = true}})},
      .csv = to_csv({{"k", t.wave_number},
                     {"target", t.energy},
                     {"predicted", p.energy},
                     {"kolmogorov", line}})};
}

// The middle plane of the first channel of one sample, as rows from the top.
torch::Tensor slice_of(const torch::Tensor& sample) {
  torch::Tensor plane = sample[0].to(torch::kFloat64);
  while (plane.dim() > 2) plane = plane[plane.size(0) / 2];
  return (plane.dim() == 1 ? plane.unsqueeze(0) : plane).contiguous();
}

Raster raster_of(const torch::Tensor& plane, double low, double high, ColorMap map) {
  const torch::Tensor flipped = plane.flip(0).contiguous();
  return {.width = static_cast<int>(plane.size(1)),
          .height = static_cast<int>(plane.size(0)),
          .values = {flipped.data_ptr<double>(), flipped.data_ptr<double>() + flipped.numel()},
          .low = low,
          .high = high,
          .map = map};
}

Picture slice_picture(const torch::Tensor& predict, const torch::Tensor& target) {
  const torch::Tensor t = slice_of(target[0]), p = slice_of(predict[0]);
  const torch::Tensor difference = p - t;
  const Range range = range_of(t, p);
  const double largest = std::max(difference.abs().max().item<double>(), 1e-12);
  const auto column = [](const torch::Tensor& plane) {
    return std::vector<double>(plane.data_ptr<double>(), plane.data_ptr<double>() + plane.numel());
  };
  return {
      .name = "slices",
      .report =
          {.title = "A slice",
           .text = "The middle plane of the first sample's first channel, both with the same "
                   "colours, and what was predicted too high (red) or too low (blue).",
           .svg = to_svg(
               {FieldPlot{.title = "Target",
                          .raster = raster_of(t, range.first, range.last, ColorMap::kSequential)},
                FieldPlot{.title = "Predicted",
                          .raster = raster_of(p, range.first, range.last, ColorMap::kSequential)},
                FieldPlot{
                    .title = "Predicted - target",
                    .raster = raster_of(difference, -largest, largest, ColorMap::kDiverging)}})},
      .csv = to_csv({{"target", column(t)},
                     {"predicted", column(p)},
                     {"difference", column(difference.contiguous())}})};
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

}  // namespace

void run(const TrainExperiment& experiment) {
  const auto start = Clock::now();
  for (const auto& [name, value] : experiment.estimator.parameters()) {
    track(experiment.trackers, [&, key = name, held = value](Tracker& tracker) {
      tracker.log_parameter("model - " + key, held);
    });
  }
  experiment.estimator.train(experiment.loaders);
  const auto lines = loss_lines(experiment.estimator.history());
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < line.x.size(); ++i) {
      track_metric(experiment.trackers, line.label + " - loss", line.y[i],
                   static_cast<std::int64_t>(line.x[i]));
    }
  }
  track_metric(experiment.trackers, "train - runtime", seconds_since(start));
  std::vector<std::pair<std::string, std::vector<double>>> columns;
  for (const Line& line : lines) {
    if (columns.empty()) columns.emplace_back("epoch", line.x);
    columns.emplace_back(line.label, line.y);
  }
  if (const std::string details = experiment.estimator.describe(); !details.empty()) {
    track_file(experiment.trackers, "model_details.txt", details);
  }
  track_file(experiment.trackers, "loss.svg", loss_picture(lines));
  track_file(experiment.trackers, "loss.csv", to_csv(columns));
}

Evaluation run(const EvaluateExperiment& experiment) {
  const auto start = Clock::now();
  Evaluation result;
  result.target = targets_of(experiment.loader).to(torch::kFloat32);
  result.predict = experiment.estimator.predict(experiment.loader).reshape_as(result.target);
  result.ks = ks_statistic(result.predict, result.target);
  const torch::Tensor t = result.target.to(torch::kFloat64);
  result.mse = (result.predict.to(torch::kFloat64) - t).square().mean().item<double>();
  result.mse_of_mean = t.var(false).item<double>();

  std::vector<Picture> pictures = {distribution_picture(result.predict, result.target, result.ks)};
  const torch::Tensor target = as_cubes(result.target, experiment.cube);
  if (target.defined()) {
    const torch::Tensor predict = as_cubes(result.predict, experiment.cube);
    pictures.push_back(slice_picture(predict, target));
    pictures.push_back(spectrum_picture(predict, target));
  }
  const auto lines = loss_lines(experiment.estimator.history());
  if (!lines.empty()) {
    pictures.push_back({.name = "loss",
                        .report = {.title = "Training",
                                   .text = "The loss after each epoch.",
                                   .svg = loss_picture(lines)},
                        .csv = ""});
  }
  result.seconds = seconds_since(start);
  track_metric(experiment.trackers, "eval - KS Stat", result.ks);
  track_metric(experiment.trackers, "eval - MSE Loss", result.mse);
  track_metric(experiment.trackers, "eval - runtime", result.seconds);

  const double explained = 100 * (1 - result.mse / result.mse_of_mean);
  ReportContent report{
      .title = experiment.title,
      .summary = fmt::format("{} on {} samples: its mean square error is {:.1f} % below that of "
                             "predicting the mean everywhere.",
                             experiment.estimator.name(), with_thousands(result.target.size(0)),
                             explained),
      .facts = {{"mean square error", fmt::format("{:.5g}", result.mse)},
                {"of predicting the mean", fmt::format("{:.5g}", result.mse_of_mean)},
                {"Kolmogorov-Smirnov statistic", fmt::format("{:.4f}", result.ks)},
                {"samples", with_thousands(result.target.size(0))},
                {"seconds", fmt::format("{:.2f}", result.seconds)}},
      .parameters = {},
      .pictures = {}};
  report.facts.insert(report.facts.begin(), experiment.facts.begin(), experiment.facts.end());
  for (const auto& [name, value] : experiment.estimator.parameters()) {
    report.parameters.emplace_back(
        name, std::visit([](const auto& held) { return fmt::format("{}", held); }, value));
  }
  for (const Picture& picture : pictures) {
    if (!picture.csv.empty()) {
      track_file(experiment.trackers, picture.name + ".svg", picture.report.svg);
      track_file(experiment.trackers, picture.name + ".csv", picture.csv);
    }
    report.pictures.push_back(picture.report);
  }
  track_file(experiment.trackers, "report.html", to_html(report));
  return result;
}

}  // namespace lockstep::science
