#include "lockstep/rendezvous/handshake.h"

#include <set>

#include <gtest/gtest.h>

namespace lockstep::rendezvous {
namespace {

Nonces fresh() {
  return {.client = random_bytes(kNonceBytes), .server = random_bytes(kNonceBytes)};
}

TEST(Handshake, BothSidesOfARunAgree) {
  const Nonces nonces = fresh();
  const Handshake server("secret", "run"), client("secret", "run");
  EXPECT_TRUE(Handshake::matches(server.server_proof(nonces), client.server_proof(nonces)));
  EXPECT_TRUE(Handshake::matches(server.client_proof(nonces, "rank 1"),
                                 client.client_proof(nonces, "rank 1")));
}

TEST(Handshake, AProofIsGoodForOneTokenRunRoleClaimAndPairOfNonces) {
  const Nonces nonces = fresh();
  const Handshake run("secret", "run");
  Nonces other_client = nonces;
  other_client.client = random_bytes(kNonceBytes);
  Nonces other_server = nonces;
  other_server.server = random_bytes(kNonceBytes);
  const Nonces swapped{.client = nonces.server, .server = nonces.client};
  const std::set<std::string> proofs = {run.server_proof(nonces),
                                        run.client_proof(nonces, ""),
                                        run.client_proof(nonces, "rank 1"),
                                        run.server_proof(other_client),
                                        run.server_proof(other_server),
                                        run.server_proof(swapped),
                                        run.client_proof(other_client, ""),
                                        run.client_proof(other_server, ""),
                                        Handshake("Secret", "run").server_proof(nonces),
                                        Handshake("secret", "other").server_proof(nonces),
                                        Handshake("secretrun", "").server_proof(nonces)};
  EXPECT_EQ(proofs.size(), 11u);
}

TEST(Handshake, ProofsAreComparedWhole) {
  EXPECT_TRUE(Handshake::matches("abc", "abc"));
  EXPECT_FALSE(Handshake::matches("abc", "abd"));
  EXPECT_FALSE(Handshake::matches("abc", "ab"));
  EXPECT_FALSE(Handshake::matches("abc", ""));
}

TEST(Handshake, TokensAreRandomAndDerivedOnesDiffer) {
  EXPECT_EQ(random_token().size(), 64u);
  EXPECT_NE(random_token(), random_token());
  EXPECT_EQ(derive_token("secret", "a"), derive_token("secret", "a"));
  EXPECT_NE(derive_token("secret", "a"), derive_token("secret", "b"));
  EXPECT_NE(derive_token("secret", "a"), derive_token("Secret", "a"));
}

}  // namespace
}  // namespace lockstep::rendezvous
