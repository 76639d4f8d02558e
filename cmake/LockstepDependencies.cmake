# Finds the libraries of the components in lockstep_components.
# All of these are packages of Debian; scripts/bootstrap installs them.
include(${CMAKE_CURRENT_LIST_DIR}/LockstepTorch.cmake)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(ZLIB REQUIRED)
find_package(Threads REQUIRED)

# xxHash comes without a CMake package.
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
if(NOT TARGET lockstep::xxhash)
  add_library(lockstep::xxhash UNKNOWN IMPORTED GLOBAL)
  set_target_properties(lockstep::xxhash PROPERTIES
    IMPORTED_LOCATION ${XXHASH_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${XXHASH_INCLUDE_DIR})
endif()

# The headers of c10d's process groups use Gloo's types. Gloo's code is in LibTorch, so we need only
# its headers.
find_path(GLOO_INCLUDE_DIR gloo/config.h REQUIRED)

if("image" IN_LIST lockstep_components)
  find_package(JPEG REQUIRED)
  find_package(PNG REQUIRED)
  find_package(TIFF REQUIRED)
  # Debian's libwebp comes without a CMake package. libwebpdemux finds the metadata of a file.
  find_package(PkgConfig REQUIRED)
  if(NOT TARGET lockstep::webp)
    pkg_check_modules(webp REQUIRED IMPORTED_TARGET GLOBAL libwebp libwebpdemux)
    add_library(lockstep::webp INTERFACE IMPORTED GLOBAL)
    target_link_libraries(lockstep::webp INTERFACE PkgConfig::webp)
  endif()
endif()

if("science" IN_LIST lockstep_components)
  # Debian has a serial and a parallel build of HDF5. We use the serial one, found by its pkg-config file.
  find_package(PkgConfig REQUIRED)
  foreach(pair hdf5=hdf5-serial fftw=fftw3)
    string(REPLACE "=" ";" pair ${pair})
    list(GET pair 0 name)
    list(GET pair 1 package)
    if(NOT TARGET lockstep::${name})
      pkg_check_modules(${name} REQUIRED IMPORTED_TARGET GLOBAL ${package})
      add_library(lockstep::${name} INTERFACE IMPORTED GLOBAL)
      target_link_libraries(lockstep::${name} INTERFACE PkgConfig::${name})
    endif()
  endforeach()
endif()

if("command" IN_LIST lockstep_components)
  find_package(yaml-cpp REQUIRED)
  find_package(CLI11 REQUIRED)
endif()
