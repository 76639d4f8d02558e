#include "lockstep/log/artifact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep {
namespace {

TEST(ArtifactName, IsGivenOrThatOfTheFile) {
  EXPECT_EQ(artifact_name({.name = "tables/a.csv", .content = "1"}), "tables/a.csv");
  EXPECT_EQ(artifact_name({.path = "/somewhere/model.onnx"}), "model.onnx");
  EXPECT_EQ(artifact_name({.name = "b", .path = "/somewhere/model.onnx"}), "b");
}

TEST(ArtifactName, StaysInTheFolder) {
  for (const char* name : {"", "/etc/passwd", "../a", "a/../../b", "a/", "a/./b", "a\nb", "\xff"}) {
    EXPECT_THROW(artifact_name({.name = name, .content = "1"}), ConfigError) << name;
  }
  EXPECT_THROW(artifact_name({.name = "a", .path = "b", .content = "1"}), ConfigError);
}

TEST(StoreArtifact, WritesBytesAndFiles) {
  const TemporaryDirectory folder;
  store_artifact({.name = "tables/a.csv", .content = "1,2"}, folder / "artifacts");
  EXPECT_EQ(read_file(folder / "artifacts/tables/a.csv"), "1,2");
  store_artifact({.name = "tables/a.csv", .content = "3"}, folder / "artifacts");
  EXPECT_EQ(read_file(folder / "artifacts/tables/a.csv"), "3");

  const std::string large(3'000'000, 'x');
  write_file_atomically(folder / "large", large);
  store_artifact({.path = folder / "large"}, folder / "artifacts");
  EXPECT_EQ(read_file(folder / "artifacts/large"), large);
  store_artifact({.path = folder / "artifacts/large"}, folder / "artifacts");
  EXPECT_EQ(read_file(folder / "artifacts/large"), large) << "it is there already";
  EXPECT_EQ(artifact_size({.path = folder / "large"}), large.size());
  EXPECT_EQ(artifact_bytes({.path = folder / "large"}), large);
  EXPECT_THROW(store_artifact({.path = folder / "none"}, folder / "artifacts"), Error);
}

TEST(ImageFileName, HasTheLoaderAndTheEpoch) {
  EXPECT_EQ(image_file_name({.loader = "valid", .tag = "my/confusion_matrix", .epoch = 3}),
            "valid/my/confusion_matrix.0003.png");
  EXPECT_THROW(image_file_name({.loader = "valid", .tag = "../../a", .epoch = 3}), ConfigError);
  EXPECT_THROW(image_file_name({.loader = "", .tag = "a", .epoch = 3}), ConfigError);
  EXPECT_THROW(image_file_name({.loader = "valid", .tag = "", .epoch = 3}), ConfigError);
}

}  // namespace
}  // namespace lockstep
