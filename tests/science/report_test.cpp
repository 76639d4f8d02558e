#include "lockstep/science/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::science {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Report, IsCompleteInItself) {
  const std::string html = to_html({.title = "A & B",
                                    .summary = "Well.",
                                    .facts = {{"error", "0.1"}},
                                    .parameters = {{"lr", "0.001"}},
                                    .pictures = {{"Slices", "To be seen.", "<svg></svg>\n"}}});
  for (const char* const part : {"<title>A &amp; B</title>", "Well.", "<td>error</td><td>0.1</td>",
                                 "<td>lr</td>", "<h2>Slices</h2>", "<svg></svg>"})
    EXPECT_THAT(html, HasSubstr(part));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, Not(HasSubstr("href=\"http")));
}

}  // namespace
}  // namespace lockstep::science
