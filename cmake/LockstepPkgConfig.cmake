# lockstep.pc: `pkg-config --cflags --libs lockstep` for programs that do not use CMake. It has all
# components that are installed. Static libraries are given from the last module to the first.
get_property(modules GLOBAL PROPERTY LOCKSTEP_MODULES)
list(REVERSE modules)
set(PC_LIBS "")
foreach(module ${modules})
  string(APPEND PC_LIBS " -l${module}")
endforeach()
set(PC_REQUIRES "fmt libcrypto zlib libxxhash")
if(LOCKSTEP_SCIENCE)
  string(APPEND PC_REQUIRES " libcurl hdf5-serial fftw3")
endif()
if(LOCKSTEP_COMMAND)
  string(APPEND PC_REQUIRES " yaml-cpp")
endif()
# The folder may be moved after it was installed.
file(RELATIVE_PATH PC_INCLUDE /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix/${CMAKE_INSTALL_INCLUDEDIR})
# LibTorch has no pkg-config file.
set(PC_TORCH_CFLAGS "")
foreach(folder ${TORCH_INCLUDE_DIRS})
  # The compiler searches this one by itself, and must not search it earlier.
  if(NOT folder STREQUAL "/usr/include")
    string(APPEND PC_TORCH_CFLAGS " -isystem ${folder}")
  endif()
endforeach()
get_filename_component(torch_folder "${TORCH_LIBRARY}" DIRECTORY)
set(PC_TORCH_LIBS "-L${torch_folder} -Wl,-rpath,${torch_folder} -ltorch_cpu -lc10")
configure_file(${PROJECT_SOURCE_DIR}/cmake/lockstep.pc.in ${PROJECT_BINARY_DIR}/lockstep.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/lockstep.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
