#include "lockstep/science/report.h"

#include <fmt/format.h>

#include "lockstep/plot/markup.h"

namespace lockstep::science {
namespace {

const char* const kStyle = R"(
body { font: 16px/1.5 Helvetica, Arial, sans-serif; color: #222; background: #f6f6f4; margin: 0; }
main { max-width: 980px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 28px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 32px 0 4px; }
p { margin: 4px 0 12px; max-width: 70ch; }
figure { margin: 0; background: #fff; border: 1px solid #ddd; border-radius: 6px; padding: 8px; overflow-x: auto; }
svg { max-width: 100%; height: auto; display: block; margin: 0 auto; }
table { border-collapse: collapse; background: #fff; border: 1px solid #ddd; border-radius: 6px; }
td { padding: 5px 16px; border-top: 1px solid #eee; } tr:first-child td { border-top: 0; }
td + td { text-align: right; font-variant-numeric: tabular-nums; }
details { margin-top: 24px; } summary { cursor: pointer; }
)";

std::string table(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::string html = "<table>\n";
  for (const auto& [name, value] : rows) {
    html += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", plot::escape_markup(name),
                        plot::escape_markup(value));
  }
  return html + "</table>\n";
}

}  // namespace

std::string to_html(const ReportContent& content) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{0}</title>\n"
      "<style>{1}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n<p>{2}</p>\n{3}",
      plot::escape_markup(content.title), kStyle, plot::escape_markup(content.summary),
      table(content.facts));
  for (const ReportPicture& picture : content.pictures) {
    html += fmt::format("<h2>{}</h2>\n<p>{}</p>\n<figure>\n{}</figure>\n",
                        plot::escape_markup(picture.title), plot::escape_markup(picture.text),
                        picture.svg);
  }
  if (!content.parameters.empty()) {
    html += "<details><summary>Parameters</summary>\n" + table(content.parameters) + "</details>\n";
  }
  return html + "</main>\n</body>\n</html>\n";
}

}  // namespace lockstep::science
