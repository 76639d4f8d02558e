# `cmake --install` and `find_package(lockstep)`.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
get_property(modules GLOBAL PROPERTY LOCKSTEP_MODULES)
install(TARGETS lockstep ${modules} EXPORT lockstep
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT lockstep NAMESPACE lockstep:: FILE lockstepTargets.cmake DESTINATION ${package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN templates EXCLUDE)

# The build tree can be used as a package, too: find_package(lockstep) with lockstep_DIR set to it.
export(EXPORT lockstep NAMESPACE lockstep:: FILE ${PROJECT_BINARY_DIR}/lockstepTargets.cmake)
foreach(script LockstepDependencies LockstepPlugin)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${script}.cmake ${PROJECT_BINARY_DIR}/${script}.cmake COPYONLY)
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
  ${PROJECT_SOURCE_DIR}/cmake/LockstepDependencies.cmake
  ${PROJECT_SOURCE_DIR}/cmake/LockstepPlugin.cmake
  DESTINATION ${package_dir})
