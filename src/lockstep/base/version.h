// The version is written only here. CMake reads it from this file.
#pragma once

#define LOCKSTEP_VERSION "0.2.0"
