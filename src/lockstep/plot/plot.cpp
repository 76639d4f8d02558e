#include "lockstep/plot/plot.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "lockstep/plot/markup.h"

namespace lockstep::plot {
namespace {

// The colours of Okabe and Ito, which colour-blind people can tell apart, too.
constexpr std::array<const char*, 6> kColors = {"#0072b2", "#d55e00", "#009e73",
                                                "#cc79a7", "#e69f00", "#56b4e9"};
constexpr double kPanelWidth = 460, kPanelHeight = 360;
constexpr double kLeft = 74, kRight = 22, kTop = 40, kBottom = 56;
constexpr double kBarWidth = 16, kBarSpace = 78;  // of the colour scale of a field

struct Box {
  double x, y, width, height;
};

struct SvgTextStyle {
  const char* anchor = "middle";
  double size = 12;
  bool bold = false;
  bool upright = false;  // turned by 90 degrees
};

std::string text(double x, double y, const std::string& content, const SvgTextStyle& style = {}) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\"{}{}>{}</text>\n", x, y,
      style.anchor, style.size, style.bold ? " font-weight=\"600\"" : "",
      style.upright ? fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, y) : "",
      escape_markup(content));
}

// One axis of a plot. It converts values to pixels.
class PlotAxis {
 public:
  PlotAxis(bool log, double low, double high, double first, double last)
      : log_(log), low_(scaled(low)), high_(scaled(high)), first_(first), last_(last) {}

  double place(double value) const {
    const double part = high_ > low_ ? (scaled(value) - low_) / (high_ - low_) : 0.5;
    return first_ + part * (last_ - first_);
  }
  bool shows(double value) const { return std::isfinite(value) && (!log_ || value > 0); }

 private:
  double scaled(double value) const { return log_ ? std::log10(value) : value; }

  bool log_;
  double low_, high_, first_, last_;
};

struct Limits {
  double low = HUGE_VAL;
  double high = -HUGE_VAL;

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

Limits limits_of(const std::vector<Line>& lines, std::vector<double> Line::*values, bool log) {
  Limits limits;
  for (const Line& line : lines) {
    for (const double value : line.*values) {
      if (std::isfinite(value) && (!log || value > 0)) limits.include(value);
    }
  }
  if (limits.low > limits.high) limits = {log ? 1.0 : 0.0, log ? 10.0 : 1.0};
  if (limits.low == limits.high) {
    if (log) {
      limits = {limits.low / 3, limits.high * 3};
    } else {
      const double margin = limits.low == 0 ? 1 : std::abs(limits.low) * 0.1;
      limits = {limits.low - margin, limits.high + margin};
    }
  }
  return limits;
}

std::string frame(const Box& box) {
  return fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>\n", box.x,
      box.y, box.width, box.height);
}

std::string path_of(const Line& line, const PlotAxis& x, const PlotAxis& y) {
  std::string path;
  bool pen_down = false;
  for (std::size_t i = 0; i < std::min(line.x.size(), line.y.size()); ++i) {
    if (!x.shows(line.x[i]) || !y.shows(line.y[i])) {
      pen_down = false;
      continue;
    }
    path += fmt::format("{}{:.2f} {:.2f}", pen_down ? "L" : "M", x.place(line.x[i]),
                        y.place(line.y[i]));
    pen_down = true;
  }
  return path;
}

// How many points of the lines lie in a box.
std::size_t points_in(const Box& box, const std::vector<Line>& lines, const PlotAxis& x,
                      const PlotAxis& y) {
  std::size_t count = 0;
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < std::min(line.x.size(), line.y.size()); ++i) {
      if (!x.shows(line.x[i]) || !y.shows(line.y[i])) continue;
      const double px = x.place(line.x[i]), py = y.place(line.y[i]);
      count += px >= box.x && px <= box.x + box.width && py >= box.y && py <= box.y + box.height;
    }
  }
  return count;
}

// The legend is in the corner where it hides the fewest points.
std::string legend(const std::vector<Line>& lines, const Box& box, const PlotAxis& x,
                   const PlotAxis& y) {
  std::size_t longest = 0, count = 0;
  for (const Line& line : lines) {
    longest = std::max(longest, line.label.size());
    count += line.label.empty() ? 0 : 1;
  }
  if (count == 0) return "";
  const double width = 44 + 6.6 * static_cast<double>(longest);
  const double height = 8 + 18 * static_cast<double>(count);
  const double right = box.x + box.width - width - 8, left = box.x + 8;
  const double top = box.y + 8, bottom = box.y + box.height - height - 8;
  Box place{right, top, width, height};
  for (const Box& corner : {Box{left, top, width, height}, Box{right, bottom, width, height},
                            Box{left, bottom, width, height}}) {
    if (points_in(corner, lines, x, y) < points_in(place, lines, x, y)) place = corner;
  }
  double row = place.y;
  std::string svg = fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"3\" fill=\"#fff\" "
      "fill-opacity=\"0.85\" stroke=\"#ccc\"/>\n",
      place.x, place.y, width, height);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].label.empty()) continue;
    row += 18;
    svg += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
        "stroke-width=\"2\"{}/>\n",
        place.x + 8, row - 5, place.x + 30, row - 5, kColors[i % kColors.size()],
        lines[i].dashed ? " stroke-dasharray=\"5 4\"" : "");
    svg += text(place.x + 36, row - 1, lines[i].label, {.anchor = "start"});
  }
  return svg;
}

std::vector<std::pair<double, std::string>> labelled(const std::vector<double>& ticks) {
  const auto labels = tick_labels(ticks);
  std::vector<std::pair<double, std::string>> both;
  for (std::size_t i = 0; i < ticks.size(); ++i) both.emplace_back(ticks[i], labels[i]);
  return both;
}

std::string draw(const LinePlot& plot, double left) {
  const Box box{left + kLeft, kTop, kPanelWidth - kLeft - kRight, kPanelHeight - kTop - kBottom};
  const Limits xs = limits_of(plot.lines, &Line::x, plot.log_x);
  Limits ys = limits_of(plot.lines, &Line::y, plot.log_y);
  // Leave room above and below the lines. If the smallest value is near zero, as for a count or a
  // density, the axis starts at zero.
  if (plot.log_y) {
    const double room = std::pow(ys.high / ys.low, 0.05);
    ys = {ys.low / room, ys.high * room};
  } else {
    const double room = 0.05 * (ys.high - ys.low);
    ys = {ys.low >= 0 && ys.low <= 0.3 * ys.high ? 0.0 : ys.low - room, ys.high + room};
  }
  const PlotAxis x(plot.log_x, xs.low, xs.high, box.x, box.x + box.width);
  const PlotAxis y(plot.log_y, ys.low, ys.high, box.y + box.height, box.y);
  std::string svg;
  for (const auto& [tick, label] :
       labelled(plot.log_x ? log_ticks(xs.low, xs.high) : linear_ticks(xs.low, xs.high))) {
    const double at = x.place(tick);
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#e4e4e4\"/>\n", at,
        box.y, box.y + box.height);
    svg += text(at, box.y + box.height + 17, label, {.size = 11});
  }
  for (const auto& [tick, label] :
       labelled(plot.log_y ? log_ticks(ys.low, ys.high) : linear_ticks(ys.low, ys.high))) {
    const double at = y.place(tick);
    svg += fmt::format(
        "<line x1=\"{1}\" y1=\"{0:.1f}\" x2=\"{2}\" y2=\"{0:.1f}\" stroke=\"#e4e4e4\"/>\n", at,
        box.x, box.x + box.width);
    svg += text(box.x - 7, at + 4, label, {.anchor = "end", .size = 11});
  }
  svg += frame(box);
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    svg += fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" "
        "stroke-linejoin=\"round\"{}/>\n",
        path_of(plot.lines[i], x, y), kColors[i % kColors.size()],
        plot.lines[i].dashed ? " stroke-dasharray=\"5 4\"" : "");
  }
  svg += text(box.x + box.width / 2, 24, plot.title, {.size = 14, .bold = true});
  svg += text(box.x + box.width / 2, kPanelHeight - 14, plot.x_label);
  svg += text(left + 18, box.y + box.height / 2, plot.y_label, {.upright = true});
  return svg + legend(plot.lines, box, x, y);
}

std::string picture(const Raster& raster, const Box& box) {
  return fmt::format(
      "<image x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
      "preserveAspectRatio=\"none\" style=\"image-rendering:pixelated\" "
      "href=\"data:image/png;base64,{}\"/>\n",
      box.x, box.y, box.width, box.height, to_base64(encode_png(to_image(raster))));
}

std::string draw(const FieldPlot& plot, double left) {
  // The image is as large as possible without a change of its proportions.
  const double room_x = kPanelWidth - kLeft - kBarSpace - kRight,
               room_y = kPanelHeight - kTop - kBottom;
  const double scale =
      std::min(room_x / std::max(1, plot.raster.width), room_y / std::max(1, plot.raster.height));
  const Box box{left + kLeft, kTop, plot.raster.width * scale, plot.raster.height * scale};
  std::string svg = picture(plot.raster, box) + frame(box);
  for (const auto& [tick, label] : labelled(linear_ticks(0, plot.raster.width))) {
    svg += text(box.x + tick * scale, box.y + box.height + 17, label, {.size = 11});
  }
  for (const auto& [tick, label] : labelled(linear_ticks(0, plot.raster.height))) {
    svg += text(box.x - 7, box.y + box.height - tick * scale + 4, label,
                {.anchor = "end", .size = 11});
  }
  svg += text(box.x + box.width / 2, 24, plot.title, {.size = 14, .bold = true});
  svg += text(box.x + box.width / 2, box.y + box.height + 38, plot.x_label);
  svg += text(left + 30, box.y + box.height / 2, plot.y_label, {.upright = true});
  // The colour scale has the largest value on top.
  constexpr int kSteps = 128;
  Raster scale_of{.width = 1,
                  .height = kSteps,
                  .values = {},
                  .low = 0,
                  .high = kSteps - 1,
                  .map = plot.raster.map};
  for (int i = kSteps; i-- > 0;) scale_of.values.push_back(i);
  const Box bar{box.x + box.width + 16, box.y, kBarWidth, box.height};
  svg += picture(scale_of, bar) + frame(bar);
  const double low = plot.raster.low, high = plot.raster.high > low ? plot.raster.high : low + 1;
  for (const auto& [tick, label] : labelled(linear_ticks(low, high))) {
    svg += text(bar.x + bar.width + 6, bar.y + bar.height * (high - tick) / (high - low) + 4, label,
                {.anchor = "start", .size = 11});
  }
  return svg;
}

}  // namespace

std::vector<double> linear_ticks(double low, double high) {
  if (!(high > low)) return {low};
  const double rough = (high - low) / 6;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * 0.999) {
      step = factor * power;
      break;
    }
  }
  const double slack = step * 1e-9;
  const double first = std::ceil((low - slack) / step);
  // If the range is as small as the rounding errors of its values, it contains no round numbers.
  if (first + 1 == first) return {low};
  std::vector<double> ticks;
  for (int i = 0; i < 20 && (first + i) * step <= high + slack; ++i) {
    ticks.push_back(first + i == 0 ? 0.0 : (first + i) * step);
  }
  return ticks;
}

std::vector<double> log_ticks(double low, double high) {
  std::vector<double> ticks;
  const double first = std::floor(std::log10(low)), last = std::ceil(std::log10(high));
  // With few decades, 2 and 5 have ticks, too. With many decades, not every decade has a tick.
  const bool fine = last - first <= 2;
  const double every = std::max(1.0, std::ceil((last - first) / 7));
  for (double decade = first; decade <= last; decade += every) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      if (digit != 1.0 && !fine) continue;
      const double tick = digit * std::pow(10.0, decade);
      if (tick >= low * 0.999999 && tick <= high * 1.000001) ticks.push_back(tick);
    }
  }
  return ticks;
}

std::vector<std::string> tick_labels(const std::vector<double>& ticks) {
  std::vector<std::string> labels;
  for (int digits = 6; digits <= 17; ++digits) {
    labels.clear();
    for (const double tick : ticks) labels.push_back(fmt::format("{:.{}g}", tick, digits));
    if (std::ranges::adjacent_find(labels) == labels.end()) break;
  }
  return labels;
}

std::string to_svg(const std::vector<Plot>& plots) {
  const double width = kPanelWidth * static_cast<double>(plots.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" "
      "font-family=\"Helvetica, Arial, sans-serif\" fill=\"#222\">\n<rect width=\"{0}\" "
      "height=\"{1}\" fill=\"#fff\"/>\n",
      width, kPanelHeight);
  double left = 0;
  for (const Plot& plot : plots) {
    svg += std::visit([&](const auto& one) { return draw(one, left); }, plot);
    left += kPanelWidth;
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep::plot
