// SHA-256 of bytes as they come.
#pragma once

#include <memory>
#include <span>
#include <string>

namespace lockstep::data {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::span<const char> bytes);

  // 64 lower-case hexadecimal digits; nothing may be added afterwards.
  std::string finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace lockstep::data
