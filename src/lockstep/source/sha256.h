// SHA-256 of bytes that are given piece by piece.
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

  // Returns 64 lower-case hexadecimal digits. update() must not be called afterwards.
  std::string finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace lockstep::data
