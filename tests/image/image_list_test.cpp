#include "lockstep/image/image_list.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "tests/data/error_text.h"
#include "tests/image/encoders.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kJpgAndPng = {"jpg", ".PNG"};

// "1 b/x.jpg": the class, and the path in the folder.
std::vector<std::string> as_text(const ImageList& list, const fs::path& folder) {
  std::vector<std::string> texts;
  for (const ListedImage& image : list.images) {
    texts.push_back(std::to_string(image.target) + " " +
                    image.path.lexically_relative(folder).string());
  }
  return texts;
}

TEST(ImageList, FoldersAreClassesInTheOrderOfTorchvision) {
  const TemporaryDirectory folder;
  for (const char* const path : {"b/2.jpg", "b/10.png", "b/sub/1.JPG", "a/x.jpg", "a/notes.txt",
                                 "a/no_extension", "loose.jpg", "b/a.jpg"}) {
    testing::write_bytes(folder / path, "");
  }
  const ImageList list = list_class_folders({.root = folder.path(), .extensions = kJpgAndPng});
  EXPECT_THAT(list.classes, ElementsAre("a", "b"));
  EXPECT_THAT(as_text(list, folder.path()),
              ElementsAre("0 a/x.jpg", "1 b/10.png", "1 b/2.jpg", "1 b/a.jpg", "1 b/sub/1.JPG"));
  const ImageList chosen =
      list_class_folders({.root = folder.path(), .extensions = kJpgAndPng, .classes = {"b", "a"}});
  EXPECT_THAT(chosen.classes, ElementsAre("b", "a"));
  EXPECT_EQ(chosen.images.back().target, 1);
}

TEST(ImageList, FoldersWithoutImagesAreNamed) {
  const TemporaryDirectory folder;
  const auto error = [&](bool allow_empty, std::vector<std::string> classes) {
    return error_text<DataError>([&] {
      list_class_folders({.root = folder.path(),
                          .extensions = kJpgAndPng,
                          .classes = std::move(classes),
                          .allow_empty = allow_empty});
    });
  };
  EXPECT_THAT(error(false, {}), HasSubstr("has no folders; expected one folder per class"));
  fs::create_directory(folder / "roses");
  EXPECT_THAT(error(true, {}), AllOf(HasSubstr("no image"), HasSubstr("roses"), HasSubstr(".jpg")));
  testing::write_bytes(folder / "tulips/1.jpg", "");
  EXPECT_THAT(error(false, {}), AllOf(HasSubstr("roses"), HasSubstr("allow_empty")));
  EXPECT_EQ(error(true, {}), "");
  EXPECT_THAT(error(false, {"tulip"}), HasSubstr("did you mean 'tulips'"));
  EXPECT_THAT(error_text<DataError>(
                  [&] { list_class_folders({.root = folder / "none", .extensions = kJpgAndPng}); }),
              HasSubstr("there is no folder"));
  EXPECT_THAT(error_text<ConfigError>(
                  [&] { list_class_folders({.root = folder.path(), .extensions = {}}); }),
              HasSubstr("extensions"));
}

TEST(ImageList, TableWithNamesOrNumbers) {
  const TemporaryDirectory folder;
  const auto list = [&](const std::string& table, ImageTable options = {}) {
    testing::write_bytes(folder / "t.csv", table);
    options.csv = folder / "t.csv";
    return list_image_table(options);
  };
  const ImageList names =
      list("label,size,path\r\ntulip,3,1.jpg\r\nrose,4,\"a, b \"\"c\"\".png\"\r\n\r\n");
  EXPECT_THAT(names.classes, ElementsAre("rose", "tulip"));
  EXPECT_THAT(as_text(names, folder.path()), ElementsAre("1 1.jpg", "0 a, b \"c\".png"));

  const ImageList marked = list("\xef\xbb\xbfpath,label\n1.jpg,rose\n");
  EXPECT_THAT(as_text(marked, folder.path()), ElementsAre("0 1.jpg")) << "a byte order mark";

  const ImageList numbers = list("1.jpg,2\n2.jpg,0");
  EXPECT_THAT(numbers.classes, ElementsAre("0", "1", "2"));
  EXPECT_THAT(as_text(numbers, folder.path()), ElementsAre("2 1.jpg", "0 2.jpg"));

  const ImageList named = list("1.jpg,1\n2.jpg,x\n", {.root = "/photos", .classes = {"x", "y"}});
  EXPECT_THAT(as_text(named, "/photos"), ElementsAre("1 1.jpg", "0 2.jpg"));
}

TEST(ImageList, MistakesInATableAreNamedWithTheirLine) {
  const TemporaryDirectory folder;
  const auto error = [&](const std::string& table, std::vector<std::string> classes = {}) {
    testing::write_bytes(folder / "t.csv", table);
    return error_text<DataError>(
        [&] { list_image_table({.csv = folder / "t.csv", .classes = std::move(classes)}); });
  };
  EXPECT_THAT(error(""), AllOf(HasSubstr("t.csv"), HasSubstr("empty")));
  EXPECT_THAT(error("path,label\n"), HasSubstr("got none"));
  EXPECT_THAT(error("a,b,c\n"), HasSubstr("'path' and 'label'"));
  EXPECT_THAT(error("path,label\n1.jpg\n"), HasSubstr("line 2: expected 2 cells, got 1"));
  EXPECT_THAT(error("1.jpg,0\n,1\n"), HasSubstr("line 2: path"));
  EXPECT_THAT(error("1.jpg,-1\n"), HasSubstr("line 1: label: expected 0 to"));
  EXPECT_THAT(error("1.jpg,999999999999\n"), HasSubstr("got 999999999999"));
  EXPECT_THAT(error("1.jpg,\"rose\n"),
              HasSubstr("line 1: a quote begins a cell and is never closed"));
  EXPECT_THAT(error("1.jpg,0\n5\" disk.jpg,1\n"), HasSubstr("line 2: a quote inside the cell '5'"));
  EXPECT_THAT(error("1.jpg,0\r2.jpg,1\r"), HasSubstr("line 1: a carriage return"));
  EXPECT_THAT(error("1.jpg,0\n\"a\nb.jpg\",0\n,1\n"), HasSubstr("line 4: path"))
      << "a cell may have several lines";
  EXPECT_THAT(error("1.jpg,rosse\n", {"rose", "tulip"}), HasSubstr("did you mean 'rose'"));
  EXPECT_THAT(error_text<DataError>([] { list_image_table({.csv = "/none/t.csv"}); }),
              HasSubstr("/none/t.csv"));
}

}  // namespace
}  // namespace lockstep::data
