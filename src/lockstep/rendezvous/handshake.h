// Two processes of a run prove to each other that both know the run's token, without sending it.
//
//   client                                        server
//   hello: the client's nonce              ->
//                                          <-     challenge: the server's nonce and proof
//   proof: the claim, the client's proof   ->
//
// A proof is an HMAC-SHA256 under a key made of the token and the run's name. It covers the role,
// the version of the protocol and both nonces, and the client's also covers what it claims (rank,
// world size). The nonces are fresh, so a recorded handshake proves nothing later; the role is
// covered, so neither side can be made to answer its own question.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::rendezvous {

inline constexpr std::size_t kNonceBytes = 32;

// Unpredictable bytes. Throws CommError where the system has none.
std::string random_bytes(std::size_t count);

// 64 random hexadecimal digits.
std::string random_token();

// A token for one purpose, from which nobody can compute `token` or the one of another purpose.
std::string derive_token(std::string_view token, std::string_view purpose);

// What both sides contributed to one handshake.
struct Nonces {
  std::string client = {};
  std::string server = {};
};

// Makes and checks the proofs of one run.
class Handshake {
 public:
  // `run` tells apart runs that share a token. It is no secret and may be empty.
  Handshake(std::string_view token, std::string_view run);

  std::string server_proof(const Nonces& nonces) const;
  std::string client_proof(const Nonces& nonces, std::string_view claim) const;

  // Takes equally long wherever two proofs differ.
  static bool matches(std::string_view expected, std::string_view shown);

 private:
  std::string key_;
};

}  // namespace lockstep::rendezvous
