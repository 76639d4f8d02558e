# lockstep_module(name [TENSORS|TORCH] [SETUP] [COMPONENT component] DEPENDS modules... LINK libraries...
#                 [EXCLUDE sources...])
#
# Makes one static library of src/lockstep/<name>, exported as lockstep::<name>. A module says how
# much of torch it needs, and uses the shared precompiled header for it: TENSORS for tensors only,
# TORCH also for layers. Modules with neither do not include torch. Headers are read, and torch's
# templates instantiated, once per group of files (UNITY_BUILD), not once per file. Nothing is made if the component is not built, and modules of such a component are left
# out of DEPENDS. SETUP is for a module whose code runs once in a run: it is optimised less, to build
# faster. EXCLUDE names sources that a build with the current options does not use.
function(lockstep_module name)
  cmake_parse_arguments(M "TENSORS;TORCH;SETUP" "COMPONENT" "DEPENDS;LINK;PRIVATE_LINK;EXCLUDE" ${ARGN})
  if(NOT M_COMPONENT)
    set(M_COMPONENT train)
  endif()
  if(NOT M_COMPONENT IN_LIST LOCKSTEP_COMPONENTS)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  list(TRANSFORM M_EXCLUDE PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/${name}/)
  list(REMOVE_ITEM sources ${M_EXCLUDE} "")
  set(target lockstep_${name})
  add_library(${target} STATIC ${sources})
  add_library(lockstep::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE ${LOCKSTEP_COMPILE_OPTIONS} $<$<BOOL:${M_SETUP}>:${LOCKSTEP_LESS_OPTIMISED}>)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  list(TRANSFORM M_DEPENDS PREPEND lockstep_)
  foreach(depend ${M_DEPENDS})
    if(NOT TARGET ${depend})
      list(REMOVE_ITEM M_DEPENDS ${depend})
    endif()
  endforeach()
  target_link_libraries(${target} PUBLIC ${M_DEPENDS} ${M_LINK} PRIVATE ${M_PRIVATE_LINK})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 14)
  if(M_TENSORS OR M_TORCH)
    target_link_libraries(${target} PUBLIC lockstep::torch)
  endif()
  if(M_TORCH)
    target_precompile_headers(${target} REUSE_FROM lockstep_torch_pch)
  elseif(M_TENSORS)
    target_precompile_headers(${target} REUSE_FROM lockstep_tensors_pch)
  endif()
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_MODULES ${target})
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_MODULES_OF_${M_COMPONENT} ${target})
endfunction()

# Makes a precompiled header for many targets. Without one, torch costs half a minute per file. With
# one, GCC still instantiates the templates that the header uses, in every file: 3 s for the
# tensors, 6.6 s for all of torch. This is why there are two.
#
# lockstep_precompiled_header(name HEADERS headers... [LINK libraries...] [OPTIONS flags...])
function(lockstep_precompiled_header name)
  cmake_parse_arguments(P "" "" "HEADERS;LINK;OPTIONS" ${ARGN})
  # file(CONFIGURE) does not write an unchanged file, so a second configure does not cause a
  # rebuild.
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp CONTENT "// carries the precompiled header\n" @ONLY)
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_compile_options(${name} PRIVATE ${LOCKSTEP_COMPILE_OPTIONS} ${P_OPTIONS})
  target_link_libraries(${name} PRIVATE lockstep::torch lockstep::fmt ${P_LINK})
  target_precompile_headers(${name} PRIVATE
    <algorithm> <cstdint> <filesystem> <functional> <map> <memory> <optional> <span> <string>
    <string_view> <utility> <variant> <vector> <fmt/format.h> ${P_HEADERS})
endfunction()

# lockstep_program(name [SETUP] [COMPONENT component | MODULES modules...] SOURCES sources...): an executable in
# build/bin that uses all of Lockstep, one component, or some modules. SETUP as above.
function(lockstep_program name)
  cmake_parse_arguments(P "SETUP" "COMPONENT" "MODULES;SOURCES" ${ARGN})
  add_executable(${name} ${P_SOURCES})
  target_compile_options(${name} PRIVATE ${LOCKSTEP_COMPILE_OPTIONS} $<$<BOOL:${P_SETUP}>:${LOCKSTEP_LESS_OPTIMISED}>)
  if(P_COMPONENT)
    get_property(libraries GLOBAL PROPERTY LOCKSTEP_MODULES_OF_${P_COMPONENT})
  elseif(P_MODULES)
    list(TRANSFORM P_MODULES PREPEND lockstep_ OUTPUT_VARIABLE libraries)
  else()
    set(libraries lockstep::lockstep)
  endif()
  target_link_libraries(${name} PRIVATE ${libraries})
  target_precompile_headers(${name} REUSE_FROM lockstep_torch_pch)
endfunction()
