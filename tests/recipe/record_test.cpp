#include "lockstep/recipe/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/config/yaml.h"

namespace lockstep::recipe {
namespace {

TEST(Record, TheConfigIsWithoutTheResume) {
  const auto document =
      config::parse_yaml("{seed: 1, resume: last, args: {resume: best, check: true}}", "");
  EXPECT_EQ(resolved_config(document), "seed: 1\nargs:\n  check: true\n");
  EXPECT_EQ(resolved_config(config::parse_yaml("{stages: {a: {resume: last, check: true}}}", "")),
            "stages:\n  a:\n    check: true\n");
}

TEST(Record, TheEnvironmentIsJsonAndKeepsSecrets) {
  ::setenv("OMP_LOCKSTEP_TEST", "7", 1);
  ::setenv("MY_PASSWORD", "secret", 1);
  ::setenv("LOCKSTEP_TOKEN", "0123456789abcdef", 1);
  const auto json = nlohmann::json::parse(describe_environment());
  EXPECT_EQ(json["variables"]["OMP_LOCKSTEP_TEST"], "7");
  EXPECT_FALSE(json["variables"].contains("MY_PASSWORD"));
  EXPECT_FALSE(json["variables"].contains("LOCKSTEP_TOKEN"));
  ::unsetenv("LOCKSTEP_TOKEN");
  EXPECT_GT(json["cores"], 0);
  EXPECT_FALSE(json["command"].empty());
  EXPECT_FALSE(json["libtorch"].get<std::string>().empty());
}

TEST(Record, IsWrittenWhereARunFindsIt) {
  const TemporaryDirectory folder;
  const auto document = config::parse_yaml("{seed: 1}", "");
  write_documents(folder.path(), run_documents(document));
  EXPECT_EQ(config::load_yaml(folder / "configs").find("seed")->text(), "1");
  EXPECT_TRUE(std::filesystem::exists(folder / "configs/environment.json"));
}

TEST(Record, OfAnEarlierStartStays) {
  const TemporaryDirectory folder;
  for (const char* const text : {"{seed: 1}", "{seed: 2}", "{seed: 3}"}) {
    write_documents(folder.path(), run_documents(config::parse_yaml(text, "")));
  }
  EXPECT_EQ(read_file(folder / "configs/config.yml"), "seed: 3\n");
  EXPECT_EQ(read_file(folder / "configs/config.1.yml"), "seed: 1\n");
  EXPECT_EQ(read_file(folder / "configs/config.2.yml"), "seed: 2\n");
  EXPECT_TRUE(std::filesystem::exists(folder / "configs/environment.2.json"));
}

}  // namespace
}  // namespace lockstep::recipe
