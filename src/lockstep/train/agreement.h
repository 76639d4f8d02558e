// What all ranks of a run must have alike. Forked workers have it by construction. Processes that a
// launcher started each read their own options, and a difference would not fail by itself: with
// different seeds, say, some samples are trained on twice and others never.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/data/loaders.h"
#include "lockstep/engine/engine.h"
#include "lockstep/train/callback.h"

namespace lockstep {

struct Plan;

// Names and values as text, in a fixed order.
using Agreement = std::vector<std::pair<std::string, std::string>>;

// Of train(): the options that decide what is trained, the data's sizes and order, the callbacks
// that run on every rank, the library, and what chooses kernels on this machine. Weights are not
// among it, since all ranks begin with rank 0's; parameters are compared by Replica.
Agreement agreement_of(const Plan& plan);

// Parts of it, for evaluate_loader.
void add_loaders(Agreement& agreement, const data::Loaders& loaders);
void add_callbacks(Agreement& agreement, const std::vector<CallbackPtr>& callbacks);
void add_engine(Agreement& agreement, const Engine& engine);
void add_machine(Agreement& agreement);

// Collective. Throws ConfigError on every rank where one has another value; the message names each
// thing that differs, with all its values and whose they are. One vote where all is alike.
void check_agreement(const Agreement& mine, comm::Communicator& communicator);

}  // namespace lockstep
