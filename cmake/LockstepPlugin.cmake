# lockstep_add_plugin(name sources...): makes a library for `lockstep run --plugin`. It is compiled
# with Lockstep's headers and uses the code in the command that loads it.
function(lockstep_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_include_directories(${name} PRIVATE
    $<TARGET_PROPERTY:lockstep::recipe,INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(${name} PRIVATE lockstep::torch lockstep::fmt)
endfunction()
