# lockstep_embed_templates(target folder): compiles the folder's files as strings into the target,
# as command/project.h declares them.
function(lockstep_embed_templates target folder)
  set(root ${CMAKE_CURRENT_SOURCE_DIR}/${folder})
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${root} ${root}/*)
  set(entries "")
  foreach(file IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${root}/${file})
    file(READ ${root}/${file} content)
    string(APPEND entries "      {\"${file}\", R\"_template_(${content})_template_\"},\n")
  endforeach()
  set(source "#include \"lockstep/command/project.h\"\n\n\
namespace lockstep::command {\n\n\
const std::vector<Template>& templates() {\n\
  static const std::vector<Template> all = {\n${entries}  };\n\
  return all;\n}\n\n}  // namespace lockstep::command\n")
  set(path ${CMAKE_CURRENT_BINARY_DIR}/${target}_templates.cpp)
  # The file is written only if it changed, so that it is not compiled again without need.
  set(before "")
  if(EXISTS ${path})
    file(READ ${path} before)
  endif()
  if(NOT before STREQUAL source)
    file(WRITE ${path} "${source}")
  endif()
  target_sources(${target} PRIVATE ${path})
endfunction()
