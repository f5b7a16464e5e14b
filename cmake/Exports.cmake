# tutti_exports(TARGET): the exported symbols of a shared library. Programs are bound to the soname and to the version node of
# exports.map, both of which change with the first two numbers of the version: before 1.0 a minor version may break
# programs. What is exported is recorded in tools/exports/; tools/check-exports compares.
function(tutti_exports target)
  set(map ${CMAKE_SOURCE_DIR}/cmake/exports.map)
  target_link_options(${target} PRIVATE LINKER:--version-script=${map})
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${map} VERSION ${PROJECT_VERSION}
                                             SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endfunction()
