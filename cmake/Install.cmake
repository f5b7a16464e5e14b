# Install.cmake: what is installed besides the libraries and modules, and the packages of `cpack -G DEB`.
#
# Components, which are the packages: command (with the shared libraries, manual pages, completion, docs), development, and
# mpi and cuda with the modules that need those. A plain `cmake --install` installs all, and writes a list of what it
# installed into share/tutti, which cmake/Uninstall.cmake reads.
include(CMakePackageConfigHelpers)

set(TUTTI_DOC ${CMAKE_INSTALL_DATAROOTDIR}/doc/tutti)
set(TUTTI_BASH_COMPLETION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions)
set(TUTTI_ZSH_COMPLETION ${CMAKE_INSTALL_DATAROOTDIR}/zsh/site-functions)
set(TUTTI_CMAKE ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)

# Every folder that is installed into: Uninstall.cmake removes those that did not exist before, if they are empty.
set(folders ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_INCLUDEDIR}/tutti ${CMAKE_INSTALL_LIBDIR}/tutti ${CMAKE_INSTALL_LIBDIR}/pkgconfig
            ${TUTTI_CMAKE} ${TUTTI_DOC} ${TUTTI_BASH_COMPLETION} ${TUTTI_ZSH_COMPLETION} ${CMAKE_INSTALL_MANDIR}/man1
            ${CMAKE_INSTALL_DATAROOTDIR}/tutti)
install(CODE "set(TUTTI_FOLDERS \"${folders}\")
              set(TUTTI_LIST ${CMAKE_INSTALL_DATAROOTDIR}/tutti/installed)
              set(TUTTI_LIBDIR ${CMAKE_INSTALL_LIBDIR})
              set(TUTTI_BINDIR ${CMAKE_INSTALL_BINDIR})
              set(TUTTI_VERSION ${PROJECT_VERSION})
              include(\"${CMAKE_CURRENT_LIST_DIR}/InstallBegin.cmake\")" COMPONENT all)

set(CMAKE_INSTALL_MESSAGE NEVER) # InstallEnd.cmake prints a summary

# `make install` builds this: neither tests nor benchmarks.
add_custom_target(installable)

# Manual pages and completion, generated from each command's --help.
function(tutti_manual)
  set(manual ${CMAKE_BINARY_DIR}/manual)
  if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
    message(STATUS "no manual pages and no completion: they are made by the command, which does not run here")
    return()
  endif()
  add_custom_command(OUTPUT ${manual}/made VERBATIM
    COMMAND ${CMAKE_SOURCE_DIR}/tools/make-manual ${manual} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:tutti>
    COMMAND ${CMAKE_COMMAND} -E touch ${manual}/made
    DEPENDS tutti tools/make-manual src/cli/completion/tutti.bash src/cli/completion/_tutti)
  add_custom_target(manual ALL DEPENDS ${manual}/made)
  add_dependencies(installable manual)
  install(DIRECTORY ${manual}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT command)
  install(FILES ${manual}/tutti.bash DESTINATION ${TUTTI_BASH_COMPLETION} RENAME tutti COMPONENT command)
  install(FILES ${manual}/_tutti DESTINATION ${TUTTI_ZSH_COMPLETION} COMPONENT all)
  install(FILES ${manual}/_tutti DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/zsh/vendor-completions # Debian's for packages
          COMPONENT command EXCLUDE_FROM_ALL)
endfunction()

function(tutti_install)
  add_dependencies(installable tutti)
  install(TARGETS tutti RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
  tutti_manual()
  install(FILES README.md ARCHITECTURE.md LICENSE DESTINATION ${TUTTI_DOC} COMPONENT command)
  install(DIRECTORY docs configs DESTINATION ${TUTTI_DOC} COMPONENT command)
  install(DIRECTORY examples DESTINATION ${TUTTI_DOC} COMPONENT development PATTERN CMakeLists.txt EXCLUDE)

  install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
  install(EXPORT tutti NAMESPACE tutti:: FILE tuttiTargets.cmake DESTINATION ${TUTTI_CMAKE} COMPONENT development)
  configure_package_config_file(cmake/tuttiConfig.cmake.in tuttiConfig.cmake INSTALL_DESTINATION ${TUTTI_CMAKE})
  write_basic_package_version_file(tuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/tuttiConfig.cmake ${CMAKE_BINARY_DIR}/tuttiConfigVersion.cmake
          DESTINATION ${TUTTI_CMAKE} COMPONENT development)
  # The build folder is a package too: -D tutti_DIR=build. It has the shared libraries only, which need no other packages.
  export(TARGETS tutti_shared tutti_comm_shared NAMESPACE tutti:: FILE ${CMAKE_BINARY_DIR}/tuttiTargets.cmake)

  # In the linker's default folders a program needs no RPATH.
  install(CODE "if(CMAKE_INSTALL_PREFIX MATCHES \"^/(usr)?/?$\")
    foreach(name tutti tutti_comm)
      set(file \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig/\${name}.pc\")
      file(READ \"\${file}\" text)
      string(REPLACE \" -Wl,-rpath,\\\${libdir}\" \"\" text \"\${text}\")
      file(WRITE \"\${file}\" \"\${text}\")
    endforeach()
  endif()" COMPONENT development)
  install(CODE "include(\"${CMAKE_SOURCE_DIR}/cmake/InstallEnd.cmake\")" COMPONENT all)
  tutti_packages()
endfunction()

# cpack -G DEB: tutti, libtutti-dev, and tutti-cuda, tutti-mpi-openmpi and tutti-mpi-mpich if their modules were built.
macro(tutti_packages)
  get_property(modules GLOBAL PROPERTY TUTTI_MODULE_COMPONENTS)
  list(REMOVE_DUPLICATES modules)
  set(CPACK_COMPONENTS_ALL command development ${modules})
  set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME tutti)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtutti-dev)
  foreach(component ${modules})
    string(TOUPPER ${component} name)
    string(REPLACE _ - CPACK_DEBIAN_${name}_PACKAGE_NAME tutti-${component})
    set(CPACK_DEBIAN_${name}_PACKAGE_ENHANCES tutti)
    set(CPACK_DEBIAN_${name}_PACKAGE_DEPENDS "tutti (= ${PROJECT_VERSION})")
    if(component MATCHES "^mpi_(.*)")
      set(CPACK_DEBIAN_${name}_PACKAGE_PROVIDES tutti-mpi)
      set(CPACK_COMPONENT_${name}_DESCRIPTION "The module behind backend mpi for ${CMAKE_MATCH_1}.")
    endif()
  endforeach()
  foreach(component ${CPACK_COMPONENTS_ALL}) # Debian looks for the licence there
    string(TOUPPER ${component} name)
    install(FILES LICENSE RENAME copyright DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${CPACK_DEBIAN_${name}_PACKAGE_NAME}
            COMPONENT ${component} EXCLUDE_FROM_ALL)
  endforeach()
  set(CPACK_GENERATOR DEB)
  set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/cmake/Package.cmake)
  set(CPACK_PACKAGE_NAME tutti)
  set(CPACK_PACKAGE_VENDOR "The Tutti authors")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributed data-parallel training in C")
  set(CPACK_SET_DESTDIR ON) # so that install() uses the package's prefix
  set(CPACK_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The Tutti authors <tutti@localhost>")
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
  set(CPACK_DEBIAN_COMMAND_PACKAGE_SUGGESTS "libtutti-dev, tutti-mpi")
  set(CPACK_COMPONENT_COMMAND_DESCRIPTION "The command, the shared libraries libtutti and libtutti_comm, and their documentation.")
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "tutti (= ${PROJECT_VERSION}), libc6-dev")
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS "pkg-config")
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "cmake, libsodium-dev, libxxhash-dev, libjansson-dev, zlib1g-dev") # for the archives
  set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers, archives, pkg-config files, a CMake package, and examples.")
  set(CPACK_COMPONENT_CUDA_DESCRIPTION "The modules behind device cuda and backend nccl.")
  include(CPack)
endmacro()
