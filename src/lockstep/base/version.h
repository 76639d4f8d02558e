// The one place where the version is written; CMake reads it from here.
#pragma once

#define LOCKSTEP_VERSION "0.1.0"
