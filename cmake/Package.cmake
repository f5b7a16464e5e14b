# Package.cmake: read by cpack. Without these tools it would make packages without dependencies, with only a warning.
foreach(tool dpkg-shlibdeps file)
  find_program(TUTTI_PACKAGE_${tool} ${tool})
  if(CPACK_GENERATOR STREQUAL "DEB" AND NOT TUTTI_PACKAGE_${tool})
    message(FATAL_ERROR "no ${tool} here, which finds what a package depends on: apt-get install dpkg-dev file")
  endif()
endforeach()
