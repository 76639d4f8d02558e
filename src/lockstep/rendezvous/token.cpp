#include "lockstep/rendezvous/token.h"

#include <cerrno>
#include <cstring>
#include <set>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/warn.h"

namespace lockstep::rendezvous {
namespace {

constexpr std::size_t kFewestCharacters = 16;
constexpr std::size_t kFewestDifferent = 6;
constexpr std::size_t kLargestFile = 4096;

constexpr const char* kRemedy =
    "make one on one host by `(umask 077; openssl rand -hex 32 > ~/.lockstep-token)`, copy the "
    "file to the other hosts (`scp -p`), and set LOCKSTEP_TOKEN_FILE=$HOME/.lockstep-token on all "
    "of them. LOCKSTEP_ALLOW_GUESSABLE_TOKEN=1 does without a secret, for networks where all users "
    "are trusted";

std::string value_of(const process::Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

std::string find_token(const TokenRequest& request, const process::Environment& environment) {
  if (!request.given.empty()) return request.given;
  if (request.file) return read_token_file(*request.file);
  if (const std::string token = value_of(environment, kTokenVariable); !token.empty()) return token;
  const std::string file = value_of(environment, kTokenFileVariable);
  return file.empty() ? "" : read_token_file(file);
}

// A name that tells runs apart if there is no secret.
std::string public_name(const TokenRequest& request) {
  return fmt::format("lockstep {} {}", request.place, request.run);
}

std::string read_bytes(const FileDescriptor& file, const std::filesystem::path& path) {
  std::string bytes(kLargestFile + 1, '\0');
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t count = ::read(file.get(), bytes.data() + size, bytes.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw ConfigError("token file {}: cannot be read: {}", path.string(), std::strerror(errno));
    }
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  if (size > kLargestFile) {
    throw ConfigError("token file {}: expected at most {} bytes", path.string(), kLargestFile);
  }
  bytes.resize(size);
  return bytes;
}

void check_owner(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) {
    throw ConfigError("token file {}: {}", path.string(), std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    throw ConfigError("token file {}: expected a regular file", path.string());
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    throw ConfigError(
        "token file {}: it belongs to user {}, expected user {} or root: the owner of the file can "
        "change it",
        path.string(), status.st_uid, ::geteuid());
  }
  if ((status.st_mode & 077) != 0) {
    throw ConfigError(
        "token file {}: other users may read or write it (mode {:03o}): run `chmod 600 {}`, and "
        "make a new token if the machine has other users",
        path.string(), status.st_mode & 0777, path.string());
  }
}

}  // namespace

std::string read_token_file(const std::filesystem::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) {
    throw ConfigError("token file {}: cannot be opened: {}", path.string(), std::strerror(errno));
  }
  check_owner(file, path);
  const std::string bytes = read_bytes(file, path);
  constexpr const char* kWhite = " \t\r\n";
  const auto first = bytes.find_first_not_of(kWhite);
  if (first == std::string::npos) throw ConfigError("token file {}: it is empty", path.string());
  return bytes.substr(first, bytes.find_last_not_of(kWhite) + 1 - first);
}

bool is_guessable(const std::string& token, const TokenRequest& request) {
  if (token.size() < kFewestCharacters) return true;
  if (std::set<char>(token.begin(), token.end()).size() < kFewestDifferent) return true;
  return token == request.run || token == request.place || token == public_name(request);
}

std::string resolve_token(const TokenRequest& request, const process::Environment& environment) {
  std::string token = find_token(request, environment);
  const bool missing = token.empty();
  if (missing) token = public_name(request);
  if (!request.beyond_host || !is_guessable(token, request)) return token;

  const std::string problem =
      missing ? "there is no token"
              : fmt::format(
                    "the token can be guessed (it has fewer than {} characters, fewer than "
                    "{} different ones, or is the run's name or address)",
                    kFewestCharacters, kFewestDifferent);
  const std::string allowed = value_of(environment, kAllowGuessableVariable);
  if (!request.allow_guessable && (allowed.empty() || allowed == "0")) {
    throw ConfigError("rendezvous at {}: ranks of several hosts need a secret token, and {}: {}",
                      request.place, problem, kRemedy);
  }
  warn_once(
      fmt::format("rendezvous at {}: {}: any process that reaches that address "
                  "can join the run and change its results",
                  request.place, problem));
  return token;
}

}  // namespace lockstep::rendezvous
