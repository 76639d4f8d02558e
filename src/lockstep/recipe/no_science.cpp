// add_science() of a build without the component `science` (LOCKSTEP_SCIENCE=OFF).
#include "lockstep/recipe/targets.h"

namespace lockstep::recipe {

void add_science(Targets&) {}

}  // namespace lockstep::recipe
