#include "lockstep/source/download.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/source/digest.h"
#include "tests/data/error_text.h"
#include "tests/source/idx_files.h"
#include "tests/source/loopback_server.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

const std::string kBody(100'000, 'x');

std::string hash_of(const std::string& bytes) {
  Digest digest(Hash::kSha256);
  digest.update(bytes);
  return digest.finish();
}

class DownloadTest : public testing::Test {
 protected:
  DownloadTest() {
    ::setenv("no_proxy", "127.0.0.1", 1);
    testing::internal::CaptureStderr();
  }
  ~DownloadTest() override { testing::internal::GetCapturedStderr(); }

  DownloadOptions from(std::vector<std::string> urls) const {
    return {.urls = std::move(urls), .path = path(), .sha256 = hash_of(kBody)};
  }

  std::string error_of(const DownloadOptions& options) const {
    return error_text<DataError>([&] { download(options); });
  }

  fs::path path() const { return folder_ / "sub" / "file.gz"; }

  // The files in the folder, partial ones included.
  std::ptrdiff_t files() const {
    if (!fs::exists(path().parent_path())) return 0;
    const fs::directory_iterator entries(path().parent_path());
    return std::distance(begin(entries), end(entries));
  }

  TemporaryDirectory folder_;
  LoopbackServer server_{{
      {"/good", LoopbackServer::ok(kBody)},
      {"/other", LoopbackServer::ok("something else")},
      {"/half", LoopbackServer::ok(kBody).substr(0, 50'000)},
      {"/away", LoopbackServer::redirect("/good")},
      {"/local", LoopbackServer::redirect("file:///etc/hostname")},
      {"/loop", LoopbackServer::redirect("/loop")},
      {"/silent", ""},
  }};
};

TEST(UrlsAt, EveryMirrorHasTheFileBelowItsAddress) {
  EXPECT_THAT(urls_at({"http://a", "http://b/c/"}, "x.gz"),
              testing::ElementsAre("http://a/x.gz", "http://b/c/x.gz"));
}

TEST_F(DownloadTest, PutsTheFileInItsPlace) {
  download(from({server_.url("/good")}));
  EXPECT_EQ(read_file(path()), kBody);
  EXPECT_EQ(files(), 1);
}

TEST_F(DownloadTest, ComparesMd5WhereThereIsNoSha256) {
  Digest digest(Hash::kMd5);
  digest.update(kBody);
  DownloadOptions options{.urls = {server_.url("/other")}, .path = path(), .md5 = digest.finish()};
  EXPECT_THAT(error_of(options), HasSubstr("wrong file: MD5 of the 14 bytes is "));
  options.urls = {server_.url("/good")};
  download(options);
  EXPECT_EQ(read_file(path()), kBody);
}

TEST_F(DownloadTest, RefusesAFileWithoutAChecksum) {
  const DownloadOptions options{.urls = {server_.url("/good")}, .path = path()};
  EXPECT_THAT(error_of(options), HasSubstr("expected"));
  EXPECT_EQ(files(), 0);
}

TEST_F(DownloadTest, FollowsARedirect) {
  download(from({server_.url("/away")}));
  EXPECT_EQ(read_file(path()), kBody);
}

TEST_F(DownloadTest, GoesToTheNextMirror) {
  // No process listens on port 1.
  download(from({server_.url("/none"), "http://127.0.0.1:1/file", server_.url("/other"),
                 server_.url("/half"), server_.url("/good")}));
  EXPECT_EQ(read_file(path()), kBody);
  EXPECT_EQ(files(), 1);
}

TEST_F(DownloadTest, NamesEveryMirrorWithItsReason) {
  DownloadOptions options = from({server_.url("/none"), "http://127.0.0.1:1/file",
                                  server_.url("/other"), server_.url("/half")});
  options.advice = "put it there by hand";
  EXPECT_THAT(error_of(options),
              AllOf(HasSubstr(path().string() + ": cannot be downloaded:"),
                    HasSubstr(server_.url("/none") + ": The requested URL returned error: 404"),
                    HasSubstr("http://127.0.0.1:1/file: Failed to connect"),
                    HasSubstr("wrong file: SHA-256 of the 14 bytes is " +
                              hash_of("something else") + ", expected " + hash_of(kBody)),
                    AnyOf(HasSubstr("bytes remaining to read"), HasSubstr("bytes missing")),
                    HasSubstr("\nput it there by hand")));
  EXPECT_EQ(files(), 0);
}

TEST_F(DownloadTest, KeepsTheOldFileWhenItFails) {
  fs::create_directories(path().parent_path());
  write_bytes(path(), "old");
  EXPECT_NE(error_of(from({server_.url("/half")})), "");
  EXPECT_EQ(read_file(path()), "old");
  EXPECT_EQ(files(), 1);
}

// Another user of a shared folder may put links where temporary files are expected.
TEST_F(DownloadTest, IsNotRedirectedByALinkInTheFolder) {
  fs::create_directories(path().parent_path());
  write_bytes(folder_ / "victim", "old");
  const std::string target = path().string();
  const std::string pid = std::to_string(::getpid());
  for (const std::string& link :
       {target, target + ".part", target + ".part." + pid, target + ".tmp." + pid}) {
    fs::create_symlink(folder_ / "victim", link);
  }
  download(from({server_.url("/good")}));
  EXPECT_EQ(read_file(folder_ / "victim"), "old");
  EXPECT_FALSE(fs::is_symlink(path()));
  EXPECT_EQ(read_file(path()), kBody);
}

TEST_F(DownloadTest, StopsAtTheLimit) {
  DownloadOptions options = from({server_.url("/good")});
  options.max_bytes = 99'999;
  EXPECT_THAT(error_of(options), HasSubstr("more than the 99999 bytes that are allowed"));
  EXPECT_EQ(files(), 0);
}

TEST_F(DownloadTest, IsNotRedirectedToOtherProtocolsOrForEver) {
  EXPECT_THAT(error_of(from({server_.url("/local")})), HasSubstr("file"));
  EXPECT_NE(error_of(from({server_.url("/loop")})), "");
  EXPECT_NE(error_of(from({"file:///etc/hostname"})), "");
  EXPECT_EQ(files(), 0);
}

TEST_F(DownloadTest, GivesUpOnAMirrorThatStalls) {
  DownloadOptions options = from({server_.url("/silent"), server_.url("/good")});
  options.stall_timeout = std::chrono::seconds(1);
  download(options);
  EXPECT_EQ(read_file(path()), kBody);
}

TEST_F(DownloadTest, WithoutMirrorsSaysSo) {
  EXPECT_THAT(error_of(from({})), HasSubstr("no mirror was given"));
}

TEST_F(DownloadTest, AFailureLeavesNoFolder) {
  EXPECT_THAT(error_of(from({server_.url("/none")})), HasSubstr("cannot be downloaded"));
  EXPECT_FALSE(fs::exists(path().parent_path()));
  EXPECT_TRUE(fs::exists(folder_.path())) << "was there before";
}

}  // namespace
}  // namespace lockstep::data
