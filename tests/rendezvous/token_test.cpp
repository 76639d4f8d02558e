#include "lockstep/rendezvous/token.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/warn.h"
#include "tests/support/rank_process.h"

namespace lockstep::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kGood = "0123456789abcdef0123456789abcdef";

class TokenTest : public ::testing::Test {
 protected:
  std::filesystem::path file_with(const std::string& text, mode_t mode = 0600) {
    const auto path = folder_ / "token";
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }

  TemporaryDirectory folder_;
};

TokenRequest on_several_hosts() {
  return {.run = "tuesday-run-of-march", .place = "10.0.0.1:29500", .beyond_host = true};
}

TEST_F(TokenTest, TheFirstSourceCounts) {
  const std::string path = file_with("from the variable's file\n").string();
  TemporaryDirectory other;
  std::ofstream(other / "token") << "from the option's file";
  ::chmod((other / "token").c_str(), 0400);

  process::Environment environment = {{kTokenFileVariable, path}};
  TokenRequest request = on_several_hosts();
  EXPECT_EQ(resolve_token(request, environment), "from the variable's file");
  environment[kTokenVariable] = "from the variable itself";
  EXPECT_EQ(resolve_token(request, environment), "from the variable itself");
  request.file = other / "token";
  EXPECT_EQ(resolve_token(request, environment), "from the option's file");
  request.given = "from the program itself";
  EXPECT_EQ(resolve_token(request, environment), "from the program itself");
}

TEST_F(TokenTest, SeveralHostsNeedOneAndAreToldHowToMakeIt) {
  EXPECT_THAT(
      message_of<ConfigError>([] { resolve_token(on_several_hosts(), {}); }),
      AllOf(HasSubstr("10.0.0.1:29500"), HasSubstr("there is no token"),
            HasSubstr("(umask 077; openssl rand -hex 32 > ~/.lockstep-token)"),
            HasSubstr("LOCKSTEP_TOKEN_FILE"), HasSubstr("LOCKSTEP_ALLOW_GUESSABLE_TOKEN=1")));
}

TEST_F(TokenTest, SeveralHostsRefuseWhatCanBeGuessedAndDoNotShowIt) {
  for (const std::string token : {"lockstep", "none.0", "10.0.0.1:29500", "tuesday-run-of-march",
                                  "short", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    TokenRequest request = on_several_hosts();
    request.given = token;
    request.place = token == "10.0.0.1:29500" ? token : "node";
    EXPECT_TRUE(is_guessable(token, request)) << token;
    request.place = "node";
    const std::string text = message_of<ConfigError>([&] { resolve_token(request, {}); });
    EXPECT_THAT(text, HasSubstr("can be guessed"));
    EXPECT_THAT(text, Not(HasSubstr("'" + token + "'")));
  }
  EXPECT_FALSE(is_guessable(kGood, on_several_hosts()));
}

TEST_F(TokenTest, GuessableOnesCanBeAllowedAndAreWarnedOf) {
  std::string warning;
  const auto before = set_warning_handler([&](const std::string& text) { warning = text; });
  TokenRequest request = on_several_hosts();
  request.place = "10.0.0.7:1";  // a warning is shown once
  EXPECT_NE(resolve_token(request, {{kAllowGuessableVariable, "1"}}), "");
  EXPECT_THAT(warning, AllOf(HasSubstr("10.0.0.7:1"), HasSubstr("can join the run")));
  request.place = "10.0.0.8:1";
  request.allow_guessable = true;
  EXPECT_NE(resolve_token(request, {}), "");
  EXPECT_THAT(warning, HasSubstr("10.0.0.8:1"));
  set_warning_handler(before);
  request.allow_guessable = false;
  EXPECT_THROW(resolve_token(request, {{kAllowGuessableVariable, "0"}}), ConfigError);
}

TEST_F(TokenTest, OneHostTellsRunsApartByNameAndPlace) {
  const TokenRequest request{.run = "a", .place = "127.0.0.1:1"};
  TokenRequest other = request;
  other.run = "b";
  EXPECT_NE(resolve_token(request, {}), "");
  EXPECT_NE(resolve_token(request, {}), resolve_token(other, {}));
  other.given = "short";
  EXPECT_EQ(resolve_token(other, {}), "short");
}

TEST_F(TokenTest, AFileIsItsOwnersAlone) {
  EXPECT_EQ(read_token_file(file_with("  " + kGood + "\r\n")), kGood);
  for (const mode_t mode : {0640, 0604, 0620, 0666}) {
    const auto path = file_with(kGood, mode);
    EXPECT_THAT(message_of<ConfigError>([&] { read_token_file(path); }),
                AllOf(HasSubstr(path.string()), HasSubstr("chmod 600"), Not(HasSubstr(kGood))));
  }
  if (::geteuid() == 0) {
    const auto path = file_with(kGood);
    ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
    EXPECT_THAT(message_of<ConfigError>([&] { read_token_file(path); }),
                HasSubstr("belongs to user 12345"));
  }
}

TEST_F(TokenTest, AFileThatIsNoneIsNamed) {
  EXPECT_THAT(message_of<ConfigError>([&] { read_token_file(folder_ / "nowhere"); }),
              AllOf(HasSubstr("nowhere"), HasSubstr("No such file")));
  EXPECT_THAT(message_of<ConfigError>([&] { read_token_file(file_with(" \n")); }),
              HasSubstr("empty"));
  EXPECT_THAT(message_of<ConfigError>([&] { read_token_file(file_with(std::string(5000, 'x'))); }),
              HasSubstr("at most 4096 bytes"));
  EXPECT_THAT(message_of<ConfigError>([&] { read_token_file(folder_.path()); }),
              HasSubstr("regular file"));
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(message_of<ConfigError>([&] { read_token_file(pipe); }), HasSubstr("regular file"));
}

}  // namespace
}  // namespace lockstep::rendezvous
