// One HTML page about an evaluation.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::science {

struct ReportPicture {
  std::string title;
  std::string text;  // what the picture shows
  std::string svg;
};

struct ReportContent {
  std::string title;
  std::string summary;                                     // a sentence
  std::vector<std::pair<std::string, std::string>> facts;  // names and values
  std::vector<std::pair<std::string, std::string>> parameters;
  std::vector<ReportPicture> pictures;
};

// HTML that refers to no other file: styles and pictures are inside it.
std::string to_html(const ReportContent& content);

}  // namespace lockstep::science
