#include "lockstep/science/pictures.h"

#include <algorithm>
#include <vector>

#include "lockstep/plot/plot.h"
#include "lockstep/science/csv.h"
#include "lockstep/science/spectrum.h"

namespace lockstep::science {
namespace {

std::vector<double> list_of(const torch::Tensor& values) {
  const torch::Tensor flat = values.to(torch::kFloat64).flatten().contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

std::vector<double> middles(const std::vector<double>& edges) {
  std::vector<double> centers;
  for (std::size_t i = 0; i + 1 < edges.size(); ++i)
    centers.push_back((edges[i] + edges[i + 1]) / 2);
  return centers;
}

// The part of the function whose values are in the range.
Cdf cut(const Cdf& whole, const Range& range) {
  Cdf part;
  for (std::size_t i = 0; i < whole.value.size(); ++i) {
    if (whole.value[i] < range.first || whole.value[i] > range.last) continue;
    part.value.push_back(whole.value[i]);
    part.fraction.push_back(whole.fraction[i]);
  }
  return part;
}

Picture line_picture(const torch::Tensor& predict, const torch::Tensor& target) {
  const auto t = list_of(target), p = list_of(predict), d = list_of(predict - target);
  const auto x = list_of(torch::arange(target.numel()));
  return {
      .name = "slices",
      .report =
          {.title = "A line",
           .text =
               "The first sample's first channel, and the difference: above 0 where the prediction "
               "is too high, below 0 where it is too low.",
           .svg =
               plot::to_svg({plot::LinePlot{.title = "Target and predicted",
                                            .x_label = "x",
                                            .y_label = "value",
                                            .lines = {{"target", x, t}, {"predicted", x, p, true}}},
                             plot::LinePlot{.title = "Predicted - target",
                                            .x_label = "x",
                                            .y_label = "difference",
                                            .lines = {{"", x, d}}}})},
      .csv = to_csv({{"x", x}, {"target", t}, {"predicted", p}, {"difference", d}})};
}

// The values of a plane, and the names of its axes.
struct FieldPlane {
  torch::Tensor values;  // [rows, columns], the first row at the bottom
  const char* row;
  const char* column;
};

// The middle plane of [x, y, z], or all of [x, y].
FieldPlane plane_of(const torch::Tensor& channel) {
  if (channel.dim() == 2) return {.values = channel, .row = "x", .column = "y"};
  return {.values = channel[channel.size(0) / 2], .row = "y", .column = "z"};
}

struct Colors {
  Range range;
  plot::ColorMap map;
};

plot::FieldPlot field_plot(const std::string& title, const FieldPlane& plane,
                           const Colors& colors) {
  return {.title = title,
          .raster = {.width = static_cast<int>(plane.values.size(1)),
                     .height = static_cast<int>(plane.values.size(0)),
                     .values = list_of(plane.values.flip(0)),
                     .low = colors.range.first,
                     .high = colors.range.last,
                     .map = colors.map},
          .x_label = plane.column,
          .y_label = plane.row};
}

struct Spectra {
  Spectrum predict, target;
};

// Sets values that are only rounding errors, compared with the largest, to 0. They would take up
// most of a logarithmic axis.
std::vector<double> drawn(const std::vector<double>& energy) {
  const double least = energy.empty() ? 0 : 1e-8 * std::ranges::max(energy);
  std::vector<double> seen = energy;
  for (double& value : seen) value = value < least ? 0 : value;
  return seen;
}

Picture picture_of(const Spectra& spectra, const std::string& text) {
  const Spectrum &p = spectra.predict, &t = spectra.target;
  const auto line = kolmogorov_line(t);
  return {.name = "spectrum",
          .report = {.title = "Power spectrum",
                     .text = "How much energy each scale has: large scales on the left, small ones "
                             "on the right. The dashed line falls as k^(-5/3), as in Kolmogorov's "
                             "turbulence. Values below 1e-8 of the largest are not drawn. k counts "
                             "waves in the shortest side. " +
                             text,
                     .svg = plot::to_svg(
                         {plot::LinePlot{.title = "Power spectrum",
                                         .x_label = "wave number k",
                                         .y_label = "E(k)",
                                         .lines = {{"target", t.wave_number, drawn(t.energy)},
                                                   {"predicted", p.wave_number, drawn(p.energy)},
                                                   {"k^(-5/3)", t.wave_number, line, true}},
                                         .log_x = true,
                                         .log_y = true}})},
          .csv = to_csv({{"k", t.wave_number},
                         {"target", t.energy},
                         {"predicted", p.energy},
                         {"kolmogorov", line}})};
}

using SpectrumOf = Spectrum (*)(const torch::Tensor&, const BoxLengths&);

// More fields would take long and change the mean little.
constexpr std::int64_t kMostFields = 64;

// The mean over the first fields or cubes of [n, C, …], at most kMostFields of them.
Spectrum mean_spectrum(const torch::Tensor& samples, const BoxLengths& box, SpectrumOf spectrum) {
  const std::int64_t count = std::min(kMostFields, samples.size(0));
  Spectrum sum;
  for (std::int64_t i = 0; i < count; ++i) {
    const Spectrum one = spectrum(samples[i], box);
    if (i == 0) {
      sum = one;
    } else {
      for (std::size_t k = 0; k < sum.energy.size(); ++k) sum.energy[k] += one.energy[k];
    }
  }
  for (double& energy : sum.energy) energy /= static_cast<double>(count);
  return sum;
}

}  // namespace

Picture loss_picture(const std::map<std::int64_t, EpochMetrics>& history) {
  std::vector<plot::Line> lines;
  for (const auto& [epoch, loaders] : history) {
    for (const auto& [loader, metrics] : loaders) {
      const auto loss = metrics.find("loss");
      if (loss == metrics.end()) continue;
      auto line = std::ranges::find(lines, loader, &plot::Line::label);
      if (line == lines.end())
        line = lines.insert(lines.end(), plot::Line{.label = loader, .x = {}, .y = {}});
      line->x.push_back(static_cast<double>(epoch));
      line->y.push_back(loss->second);
    }
  }
  std::vector<CsvColumn> columns;
  for (const plot::Line& line : lines) {
    if (columns.empty()) columns.emplace_back("epoch", line.x);
    columns.emplace_back(line.label, line.y);
  }
  return {.name = "loss",
          .report = {.title = "Training",
                     .text = "The loss after each epoch.",
                     .svg = plot::to_svg({plot::LinePlot{.title = "Loss",
                                                         .x_label = "epoch",
                                                         .y_label = "loss",
                                                         .lines = lines,
                                                         .log_y = true}})},
          .csv = to_csv(columns)};
}

Picture distribution_picture(const torch::Tensor& predict, const torch::Tensor& target,
                             const std::optional<Range>& range) {
  const torch::Tensor ps = finite_values(predict), ts = finite_values(target);
  const Range shown = range ? *range : range_of(ps, ts);
  const Histogram p = histogram(ps, shown), t = histogram(ts, shown);
  const Cdf pc = cut(cumulative(ps), shown), tc = cut(cumulative(ts), shown);
  return {
      .name = "pdf_cdf",
      .report = {.title = "Distribution of values",
                 .text = fmt::format("Left: the density of values. Right: the fraction of values "
                                     "up to each value. The largest distance between the two "
                                     "curves on the right is the Kolmogorov-Smirnov statistic, "
                                     "{:.4f}.",
                                     ks_statistic(ps, ts)),
                 .svg = plot::to_svg(
                     {plot::LinePlot{.title = "PDF",
                                     .x_label = "value",
                                     .y_label = "density",
                                     .lines = {{"target", middles(t.edge), t.density},
                                               {"predicted", middles(p.edge), p.density, true}},
                                     .log_y = true},
                      plot::LinePlot{.title = "CDF",
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

Picture slice_picture(const torch::Tensor& predict, const torch::Tensor& target,
                      const std::optional<Range>& range) {
  if (target.dim() == 2) return line_picture(predict[0], target[0]);
  const FieldPlane t = plane_of(target[0]), p = plane_of(predict[0]);
  const FieldPlane difference{.values = p.values - t.values, .row = t.row, .column = t.column};
  const Range shown = range ? *range : range_of(t.values, p.values);
  const double largest = std::max(finite_values(difference.values.abs())[-1].item<double>(), 1e-12);
  const Colors values{.range = shown, .map = plot::ColorMap::kSequential};
  const Colors signs{.range = {.first = -largest, .last = largest},
                     .map = plot::ColorMap::kDiverging};
  const auto place =
      torch::meshgrid({torch::arange(t.values.size(0)), torch::arange(t.values.size(1))}, "ij");
  return {.name = "slices",
          .report = {.title = "A slice",
                     .text = "The middle plane of the first channel: target and prediction in the "
                             "same colours, and the difference, red where the prediction is too "
                             "high and blue where it is too low.",
                     .svg = plot::to_svg({field_plot("Target", t, values),
                                          field_plot("Predicted", p, values),
                                          field_plot("Predicted - target", difference, signs)})},
          .csv = to_csv({{t.row, list_of(place[0])},
                         {t.column, list_of(place[1])},
                         {"target", list_of(t.values)},
                         {"predicted", list_of(p.values)},
                         {"difference", list_of(difference.values)}})};
}

Picture spectrum_picture(const torch::Tensor& predict, const torch::Tensor& target,
                         const BoxLengths& box) {
  return picture_of({.predict = mean_spectrum(predict, box, power_spectrum),
                     .target = mean_spectrum(target, box, power_spectrum)},
                    target.size(0) == 1 ? "It is that of the whole field."
                                        : fmt::format("It is the mean of {} whole fields.",
                                                      std::min(kMostFields, target.size(0))));
}

Picture cube_spectrum_picture(const torch::Tensor& predict, const torch::Tensor& target,
                              const BoxLengths& box) {
  return picture_of({.predict = mean_spectrum(predict, box, windowed_spectrum),
                     .target = mean_spectrum(target, box, windowed_spectrum)},
                    "It is the mean of single cubes. Each is tapered by a Hann window, because a "
                    "cube is not periodic.");
}

}  // namespace lockstep::science
