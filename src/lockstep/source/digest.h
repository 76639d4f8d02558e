// The checksum of bytes that are given piece by piece.
#pragma once

#include <memory>
#include <span>
#include <string>

namespace lockstep::data {

// MD5 finds damaged files, but not forged ones. It is for files whose publisher gives nothing else.
enum class Hash { kSha256, kMd5 };

class Digest {
 public:
  explicit Digest(Hash hash);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void update(std::span<const char> bytes);

  // Returns lower-case hexadecimal digits, 64 of SHA-256 or 32 of MD5. update() must not be called
  // afterwards.
  std::string finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace lockstep::data
