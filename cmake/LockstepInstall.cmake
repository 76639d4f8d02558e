# `cmake --install`, `find_package(lockstep)`, pkg-config and the Debian package.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
include(LockstepPublicHeaders)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

# Each component has an export of its own, so that a project finds the libraries of its components alone.
# The build tree can be used as a package, too: find_package(lockstep) with lockstep_DIR set to it.
foreach(component train image science command)
  get_property(modules GLOBAL PROPERTY LOCKSTEP_MODULES_OF_${component})
  list(TRANSFORM modules REPLACE "^lockstep_" "lockstep::" OUTPUT_VARIABLE LOCKSTEP_TARGETS_OF_${component})
  if(NOT modules)
    continue()
  endif()
  install(TARGETS ${modules} EXPORT lockstep-${component} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT lockstep-${component} NAMESPACE lockstep:: DESTINATION ${package_dir})
  export(EXPORT lockstep-${component} NAMESPACE lockstep:: FILE ${PROJECT_BINARY_DIR}/lockstep-${component}.cmake)
endforeach()

# What users include, and what that includes.
set(public lockstep/lockstep.h)
if(LOCKSTEP_IMAGE)
  list(APPEND public lockstep/image.h)
endif()
if(LOCKSTEP_SCIENCE)
  list(APPEND public lockstep/science.h lockstep/science/cubes.h lockstep/science/estimator.h
    lockstep/science/parameters.h)
endif()
if(LOCKSTEP_COMMAND)
  list(APPEND public lockstep/command/command.h lockstep/recipe/plugin.h lockstep/recipe/targets.h)
endif()
lockstep_public_headers(headers ${PROJECT_SOURCE_DIR}/src ${public})
foreach(header ${headers})
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/src/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()

foreach(script LockstepDependencies LockstepTorch LockstepPlugin)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${script}.cmake ${PROJECT_BINARY_DIR}/${script}.cmake COPYONLY)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/${script}.cmake DESTINATION ${package_dir})
endforeach()
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake.in
  ${PROJECT_BINARY_DIR}/lockstepConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/lockstepConfig.cmake
  ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  DESTINATION ${package_dir})

include(LockstepPkgConfig)
# The Debian package depends on Debian's LibTorch.
if(PROJECT_IS_TOP_LEVEL AND lockstep_torch_is_packaged)
  include(LockstepPackage)
endif()
