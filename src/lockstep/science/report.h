// One page about an evaluation, complete in itself.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::science {

struct ReportPicture {
  std::string title;
  std::string text;  // what is to be seen
  std::string svg;
};

struct ReportContent {
  std::string title;
  std::string summary;                                     // a sentence
  std::vector<std::pair<std::string, std::string>> facts;  // names and values
  std::vector<std::pair<std::string, std::string>> parameters;
  std::vector<ReportPicture> pictures;
};

// HTML without references to anything outside of it.
std::string to_html(const ReportContent& content);

}  // namespace lockstep::science
