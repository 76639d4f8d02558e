// Everything about fields, for users: the component `science`. lockstep/lockstep.h includes it.
// Never included inside Lockstep itself.
#pragma once

#include "lockstep/science/cnn3d.h"
#include "lockstep/science/experiment.h"
#include "lockstep/science/field_dataset.h"
#include "lockstep/science/filters.h"
#include "lockstep/science/hdf5.h"
#include "lockstep/science/hdf5_table.h"
#include "lockstep/science/krr.h"
#include "lockstep/science/picae.h"
#include "lockstep/science/scripted_network.h"
#include "lockstep/science/spectrum.h"
#include "lockstep/science/statistics.h"
#include "lockstep/science/subgrid.h"
#include "lockstep/science/tracker.h"
