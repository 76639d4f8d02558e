#include "lockstep/source/digest.h"

#include <array>

#include <fmt/format.h>
#include <openssl/evp.h>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

void check(int status) {
  if (status != 1) throw Error("checksum: OpenSSL refused");
}

}  // namespace

struct Digest::Context {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> evp{EVP_MD_CTX_new()};
};

Digest::Digest(Hash hash) : context_(std::make_unique<Context>()) {
  check(EVP_DigestInit_ex(context_->evp.get(), hash == Hash::kMd5 ? EVP_md5() : EVP_sha256(),
                          nullptr));
}

Digest::~Digest() = default;

void Digest::update(std::span<const char> bytes) {
  check(EVP_DigestUpdate(context_->evp.get(), bytes.data(), bytes.size()));
}

std::string Digest::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  check(EVP_DigestFinal_ex(context_->evp.get(), digest.data(), &length));
  std::string hex;
  for (unsigned int i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace lockstep::data
