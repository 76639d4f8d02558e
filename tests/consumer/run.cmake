# cmake -DKIND=find_package|add_subdirectory -DSOURCE=… -DBUILD=… -P run.cmake
#
# Builds and runs a consumer project in a folder of its own, outside of Lockstep's tree.
string(RANDOM LENGTH 12 unique)
if(DEFINED ENV{TMPDIR})
  set(WORK $ENV{TMPDIR}/lockstep-consumer-${unique})
else()
  set(WORK /tmp/lockstep-consumer-${unique})
endif()
file(MAKE_DIRECTORY ${WORK})
file(COPY ${SOURCE}/tests/consumer/${KIND}/ DESTINATION ${WORK}/project)

function(step)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    file(REMOVE_RECURSE ${WORK})
    message(FATAL_ERROR "failed (${result}): ${ARGV}\n${output}")
  endif()
endfunction()

if(KIND STREQUAL "find_package")
  step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
  set(arguments -DCMAKE_PREFIX_PATH=${WORK}/prefix)
else()
  set(arguments -DLOCKSTEP_SOURCE=${SOURCE})
endif()
step(${CMAKE_COMMAND} -G Ninja -S ${WORK}/project -B ${WORK}/build -DCMAKE_BUILD_TYPE=Release
     -Wno-dev ${arguments})
step(${CMAKE_COMMAND} --build ${WORK}/build --target consumer)
step(${WORK}/build/consumer)
file(REMOVE_RECURSE ${WORK})
