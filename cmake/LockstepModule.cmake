# lockstep_module(name [TORCH] DEPENDS modules... LINK libraries...)
#
# One static library for src/lockstep/<name>, exported as lockstep::<name>. TORCH modules share the
# one precompiled header; the others never see torch and compile in a second.
function(lockstep_module name)
  cmake_parse_arguments(M "TORCH" "" "DEPENDS;LINK;PRIVATE_LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  set(target lockstep_${name})
  add_library(${target} STATIC ${sources})
  add_library(lockstep::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE ${LOCKSTEP_COMPILE_OPTIONS})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  list(TRANSFORM M_DEPENDS PREPEND lockstep_)
  target_link_libraries(${target} PUBLIC ${M_DEPENDS} ${M_LINK} PRIVATE ${M_PRIVATE_LINK})
  if(M_TORCH)
    target_link_libraries(${target} PUBLIC ${TORCH_LIBRARIES})
    target_include_directories(${target} SYSTEM PUBLIC ${TORCH_INCLUDE_DIRS})
    target_precompile_headers(${target} REUSE_FROM lockstep_pch)
  endif()
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_MODULES ${target})
endfunction()

# The shared precompiled header: torch costs half a minute a file without it, a few seconds with.
function(lockstep_precompiled_header)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/pch.cpp "// carries the precompiled header\n")
  add_library(lockstep_pch OBJECT ${CMAKE_CURRENT_BINARY_DIR}/pch.cpp)
  target_compile_features(lockstep_pch PUBLIC cxx_std_20)
  target_compile_options(lockstep_pch PRIVATE ${LOCKSTEP_COMPILE_OPTIONS})
  target_link_libraries(lockstep_pch PRIVATE ${TORCH_LIBRARIES} fmt::fmt)
  target_include_directories(lockstep_pch SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})
  target_precompile_headers(lockstep_pch PRIVATE
    <algorithm> <cstdint> <filesystem> <functional> <map> <memory> <optional> <span> <string>
    <string_view> <thread> <utility> <variant> <vector> <fmt/format.h> <torch/torch.h>)
endfunction()

# lockstep_program(name sources...): an executable in build/bin that uses all of Lockstep.
function(lockstep_program name)
  add_executable(${name} ${ARGN})
  target_compile_options(${name} PRIVATE ${LOCKSTEP_COMPILE_OPTIONS})
  target_link_libraries(${name} PRIVATE lockstep::lockstep)
  target_precompile_headers(${name} REUSE_FROM lockstep_pch)
endfunction()
