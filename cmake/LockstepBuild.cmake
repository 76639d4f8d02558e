# How our own code is compiled. Nothing here reaches a consumer's targets.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  endif()

  find_program(LOCKSTEP_CCACHE ccache)
  if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # These settings are for the precompiled header: without them ccache does not cache files that
    # use it. CCACHE_DEPEND: it takes the list of headers from the compiler instead of running the preprocessor,
    # which crashes in g++ 12 with -fpch-deps.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        ${LOCKSTEP_CCACHE})
  endif()

  find_program(LOCKSTEP_MOLD mold)
  if(LOCKSTEP_MOLD)
    add_link_options(-fuse-ld=mold)
  endif()
endif()

if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
  # With sanitizers, g++ gives false warnings, because its instrumentation hides that a variable is
  # initialised.
  add_compile_options(-Wno-maybe-uninitialized)
endif()

# We set -fPIC, because CMake would compile programs with -fPIE, and they could not share the
# precompiled header.
set(LOCKSTEP_COMPILE_OPTIONS -fPIC -Wall -Wextra -Wpedantic)
if(LOCKSTEP_WERROR)
  list(APPEND LOCKSTEP_COMPILE_OPTIONS -Werror)
endif()
# Designated initialisers name some fields and leave the others at their defaults, on purpose.
list(APPEND LOCKSTEP_COMPILE_OPTIONS -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND LOCKSTEP_COMPILE_OPTIONS -Wno-restrict)   # g++ 12 sees overlaps in std::string that are not there
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    # With -O3, g++ 14 sees wrong offsets and sizes inside of std::vector<bool>, and reads of an empty std::optional.
    list(APPEND LOCKSTEP_COMPILE_OPTIONS -Wno-array-bounds -Wno-stringop-overflow -Wno-maybe-uninitialized)
  endif()
  list(APPEND LOCKSTEP_COMPILE_OPTIONS -fpch-deps)   # lets ccache see what a precompiled header depends on
endif()
# For code that is not part of the training loop: a fifth less time to compile.
set(LOCKSTEP_LESS_OPTIMISED $<$<CONFIG:Release>:-O1>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND LOCKSTEP_LESS_OPTIMISED -Wno-maybe-uninitialized)   # with -O1, g++ 12 does not see that torch's arrays are filled
  # From g++ 13 on, -O3 sets these options, and a precompiled header is for one setting of them.
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-munroll-only-small-loops LOCKSTEP_HAS_UNROLL_ONLY_SMALL_LOOPS)
  if(LOCKSTEP_HAS_UNROLL_ONLY_SMALL_LOOPS)
    list(APPEND LOCKSTEP_LESS_OPTIMISED $<$<CONFIG:Release>:-munroll-only-small-loops>
         $<$<CONFIG:Release>:-mvzeroupper>)
  endif()
endif()
