#include "lockstep/rendezvous/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/frame.h"

namespace lockstep::rendezvous {
namespace {

// Part of every proof, so that proofs of different versions of the protocol never match.
constexpr std::string_view kProtocol = "lockstep handshake 2";

std::string hmac(std::string_view key, std::string_view message) {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(message.data()), message.size(), bytes,
             &size) == nullptr) {
    throw CommError("OpenSSL's libcrypto cannot compute an HMAC-SHA256");
  }
  return {reinterpret_cast<const char*>(bytes), size};
}

std::string hexadecimal(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

}  // namespace

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (::RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1) {
    throw CommError("OpenSSL's libcrypto cannot produce random numbers");
  }
  return bytes;
}

std::string random_token() {
  return hexadecimal(random_bytes(32));
}

// FieldWriter writes lengths, so that no two lists of fields give the same message.
std::string derive_token(std::string_view token, std::string_view purpose) {
  return hexadecimal(
      hmac(token, FieldWriter().text(kProtocol).text("token").text(purpose).payload()));
}

Handshake::Handshake(std::string_view token, std::string_view run)
    : key_(hmac(token, FieldWriter().text(kProtocol).text("key").text(run).payload())) {}

std::string Handshake::server_proof(const Nonces& nonces) const {
  return hmac(key_, FieldWriter()
                        .text(kProtocol)
                        .text("server")
                        .text(nonces.client)
                        .text(nonces.server)
                        .payload());
}

std::string Handshake::client_proof(const Nonces& nonces, std::string_view claim) const {
  return hmac(key_, FieldWriter()
                        .text(kProtocol)
                        .text("client")
                        .text(nonces.client)
                        .text(nonces.server)
                        .text(claim)
                        .payload());
}

bool Handshake::matches(std::string_view expected, std::string_view shown) {
  return expected.size() == shown.size() &&
         ::CRYPTO_memcmp(expected.data(), shown.data(), expected.size()) == 0;
}

}  // namespace lockstep::rendezvous
