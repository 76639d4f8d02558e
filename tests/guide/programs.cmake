# lockstep_guide_programs(name sources...)
#
# Makes one executable of several programs, each with its own main(), and one test for each program.
# The executable takes the name of a program as its first argument.
function(lockstep_guide_programs target)
  set(includes "")
  set(bodies "")
  set(calls "")
  foreach(source ${ARGN})
    # A program that has not changed is not written again, so that it is not compiled again.
    cmake_path(GET source STEM name)
    file(COPY_FILE ${source} ${guide}/${name}.cpp ONLY_IF_DIFFERENT)
    # These come first; inside a namespace they would declare everything there.
    file(STRINGS ${source} lines REGEX "^#include <")
    list(APPEND includes ${lines})
    string(MAKE_C_IDENTIFIER ${name} space)
    string(APPEND bodies "namespace ${space} {\n#include \"${name}.cpp\"\n}\n")
    string(APPEND calls "  if (name == \"${name}\") return run(${space}::main, argc - 1, argv + 1);\n")
    add_test(NAME guide_${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/guide/run.sh $<TARGET_FILE:${target}> ${name})
    set_tests_properties(guide_${name} PROPERTIES TIMEOUT 90)
  endforeach()
  list(REMOVE_DUPLICATES includes)
  list(JOIN includes "\n" includes)
  file(CONFIGURE OUTPUT ${guide}/${target}.cpp @ONLY CONTENT "#include <string_view>
@includes@
@bodies@
namespace {
[[maybe_unused]] int run(int (*program)(), int, char**) { return program(); }
[[maybe_unused]] int run(int (*program)(int, char**), int argc, char** argv) { return program(argc, argv); }
}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : \"\";
@calls@  return 2;
}
")
  add_executable(${target} ${guide}/${target}.cpp)
  target_compile_options(${target} PRIVATE ${LOCKSTEP_COMPILE_OPTIONS} ${quick})
  target_link_libraries(${target} PRIVATE lockstep::lockstep ${test_libraries})
  target_precompile_headers(${target} REUSE_FROM tests_torch_pch)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${guide})
endfunction()
