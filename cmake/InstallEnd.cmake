# InstallEnd.cmake: after the installation: writes the list of what was installed, relative to the prefix, for Uninstall.cmake:
# files, and (with a slash) the folders that were made for them. Removes what an earlier version had installed and this one has not.
# Not under DESTDIR: a package manager removes what it installed.
if(NOT "$ENV{DESTDIR}" STREQUAL "")
  list(LENGTH CMAKE_INSTALL_MANIFEST_FILES n)
  message(STATUS "tutti ${TUTTI_VERSION}: ${n} files in $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
  return()
endif()
include("${CMAKE_CURRENT_LIST_DIR}/RemoveFiles.cmake")
set(root "${CMAKE_INSTALL_PREFIX}")
set(lines "${TUTTI_LIST}")
foreach(file IN LISTS CMAKE_INSTALL_MANIFEST_FILES)
  file(RELATIVE_PATH file "${CMAKE_INSTALL_PREFIX}" "${file}")
  list(APPEND lines "${file}")
endforeach()
list(LENGTH lines n)

set(folders ${TUTTI_NEW_FOLDERS})
if(EXISTS "${root}/${TUTTI_LIST}")
  file(STRINGS "${root}/${TUTTI_LIST}" old)
  set(old_folders ${old})
  list(FILTER old_folders INCLUDE REGEX "/$")
  list(APPEND folders ${old_folders})
  list(FILTER old EXCLUDE REGEX "/$")
  list(REMOVE_ITEM old ${lines})
  tutti_remove_files("${root}" "${old}" "${folders}")
endif()
list(APPEND lines ${folders})
list(REMOVE_DUPLICATES lines)
list(SORT lines)
list(JOIN lines "\n" text)
file(WRITE "${root}/${TUTTI_LIST}" "${text}\n")

# Programs built through pkg-config or CMake have an RPATH; for others the loader needs its cache updated.
set(usual FALSE)
if(CMAKE_INSTALL_PREFIX MATCHES "^/(usr(/local)?)?/?$")
  set(usual TRUE)
  find_program(TUTTI_LDCONFIG ldconfig PATHS /sbin /usr/sbin)
  if(TUTTI_LDCONFIG)
    execute_process(COMMAND ${TUTTI_LDCONFIG} OUTPUT_QUIET ERROR_QUIET RESULT_VARIABLE ignored) # needs root
  endif()
endif()

message(STATUS "tutti ${TUTTI_VERSION}: ${n} files in ${root}")
if(NOT usual)
  message(STATUS "for your shell: export PATH=\"${CMAKE_INSTALL_PREFIX}/${TUTTI_BINDIR}:\$PATH\" "
                 "PKG_CONFIG_PATH=\"${CMAKE_INSTALL_PREFIX}/${TUTTI_LIBDIR}/pkgconfig\"")
endif()
