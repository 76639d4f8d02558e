#include "lockstep/config/yaml.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"

namespace lockstep::config {
namespace {

using testing::HasSubstr;

std::string yaml_error(const std::string& text) {
  try {
    parse_yaml(text, "x.yml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Yaml, ReadsJson) {
  const Node json =
      parse_yaml("{\n\t\"a\": [1, 2.5, \"three\"],\n\t\"b\": {\"c\": null, \"d\": true}\n}", "x");
  EXPECT_EQ(json.find("a")->items().size(), 3u);
  EXPECT_FALSE(json.find("a")->items()[2].is_plain());
  EXPECT_TRUE(json.find("b")->find("c")->is_null());
}

TEST(Yaml, ResolvesAnchorsAndMergeKeys) {
  const Node document = parse_yaml(
      "base: &base {a: 1, b: 2}\nmore: &more {b: 3, c: 4}\n"
      "one: {<<: *base, b: 9}\nboth: {<<: [*base, *more]}\nsame: *base\n",
      "x");
  EXPECT_EQ(to_yaml(*document.find("one")), "b: 9\na: 1\n");
  EXPECT_EQ(to_yaml(*document.find("both")), "a: 1\nb: 2\nc: 4\n");
  EXPECT_EQ(to_yaml(*document.find("same")), "a: 1\nb: 2\n");
}

TEST(Yaml, RefusesWhatCannotBeMeant) {
  EXPECT_THAT(yaml_error("a: 1\na: 2\n"),
              HasSubstr("x.yml:2: the key 'a' comes twice, first in line 1"));
  EXPECT_THAT(yaml_error("a: [1, 2\nb: 3\n"), HasSubstr("x.yml:"));
  EXPECT_THAT(yaml_error("a: 1\n---\nb: 2\n"), HasSubstr("second"));
  EXPECT_THAT(yaml_error("a: !!python/object:os.system x\n"), HasSubstr("tags are not supported"));
  EXPECT_THAT(yaml_error("[1, 2]: 3\n"), HasSubstr("expected a key of text"));
  EXPECT_THAT(yaml_error("a: {<<: 3}\n"), HasSubstr("expected mappings to merge"));
  EXPECT_THAT(yaml_error("a: *nobody\n"), HasSubstr("x.yml:1"));
  EXPECT_THAT(yaml_error(std::string("a: b\0c", 6)), HasSubstr("byte of zero"));
  EXPECT_THAT(yaml_error("a: \xe4"), HasSubstr("not UTF-8"));
  std::string many;
  for (int i = 0; i < 6000; ++i) many += fmt::format("k{}: 1\n", i);
  EXPECT_THAT(yaml_error(many), HasSubstr("more than 5,000 keys"));
}

TEST(Yaml, ATabIsCalledATab) {
  EXPECT_EQ(yaml_error("a: 1\nloaders:\n\ttrain: 1\n"),
            "x.yml:3: a tab in the indentation; YAML is indented by spaces");
  EXPECT_EQ(yaml_error("a:\n  - 1\n\t- 2\n"),
            "x.yml:3: a tab in the indentation; YAML is indented by spaces");
  EXPECT_THAT(yaml_error("a: [1, 2\nb: 3\n"), testing::Not(HasSubstr("tab")));
}

TEST(Yaml, RefusesAnAliasBombQuickly) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 30; ++i) {
    bomb += fmt::format("a{}: &a{} [", i, i);
    for (int k = 0; k < 10; ++k) bomb += fmt::format("{}*a{}", k == 0 ? "" : ", ", i - 1);
    bomb += "]\n";
  }
  EXPECT_THAT(yaml_error(bomb), HasSubstr("more than 100,000 values"));
}

TEST(Yaml, RefusesDeepNestingAndHugeText) {
  EXPECT_THAT(yaml_error(std::string(100, '[') + std::string(100, ']')),
              HasSubstr("nested more than 64 deep"));
  EXPECT_NE(yaml_error(std::string(100'000, '[')), "");
  EXPECT_THAT(yaml_error("a: &a " + std::string(60, '[') + std::string(60, ']') +
                         "\nb: " + std::string(30, '[') + "*a" + std::string(30, ']')),
              HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(yaml_error(std::string(kLargestFile + 1, ' ')),
              HasSubstr("expected at most 4.0 MiB"));
}

TEST(Yaml, AnAliasOfWhatItIsInIsRefused) {
  EXPECT_THAT(yaml_error("a: &a [*a]\n"), HasSubstr("x.yml:1"));
}

TEST(Yaml, WhatIsWrittenReadsBackTheSame) {
  const std::string text =
      "{a: 1e-3, b: '1e-3', c: \"two\\nlines\", d: [], e: {}, f: ~, g: 'true', h: \"\", "
      "i: [{x: 1}, [2]], 'key: with': '# no comment', j: -.inf, k: \"ä€\"}";
  const Node once = parse_yaml(text, "x");
  const Node twice = parse_yaml(to_yaml(once), "x");
  EXPECT_EQ(to_yaml(once), to_yaml(twice));
  EXPECT_FALSE(twice.find("b")->is_plain());
  EXPECT_TRUE(twice.find("a")->is_plain());
  EXPECT_TRUE(twice.find("f")->is_null());
  EXPECT_EQ(twice.find("c")->text(), "two\nlines");
  EXPECT_EQ(twice.find("k")->text(), "ä€");
}

TEST(LoadYaml, AFolderMeansItsConfig) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "config.yml", "a: 1\n");
  EXPECT_EQ(load_yaml(folder.path()).find("a")->text(), "1");
  EXPECT_THROW(load_yaml(folder / "other.yml"), ConfigError);
  write_file_atomically(folder / "list.yml", "[1]\n");
  EXPECT_THROW(load_yaml(folder / "list.yml"), ConfigError);
  EXPECT_THROW(load_yaml("/dev/zero"), ConfigError);
}

// The file system refuses the path before the file is opened, as it does for a file in a folder
// without permission.
TEST(Yaml, AFileThatCannotBeLookedAtIsNamedOnce) {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder / "loop.yml";
  std::filesystem::create_symlink("loop.yml", path);
  try {
    load_yaml(path);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()), path.string() + ": Too many levels of symbolic links");
  }
}

}  // namespace
}  // namespace lockstep::config
