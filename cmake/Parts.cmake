# Optional parts. TUTTI_<PART> is AUTO (used if it is found), ON (an error if it is not) or OFF (not looked for).
#
#   tutti_parts(NAMES...)      declares them
#   tutti_look_for(PART OUT)   OUT: whether to look for it at all
#   tutti_part(PART FOUND LOOKED_FOR REMEDY)    after the search: appends to TUTTI_FOUND, or fails if ON
function(tutti_parts)
  foreach(part ${ARGN})
    string(TOUPPER ${part} name)
    set(TUTTI_${name} AUTO CACHE STRING "Optional part ${part}: AUTO (where it is found), ON (an error where not), OFF")
    set_property(CACHE TUTTI_${name} PROPERTY STRINGS AUTO ON OFF)
    if(NOT TUTTI_${name} MATCHES "^(AUTO|ON|OFF)$")
      message(FATAL_ERROR "TUTTI_${name} is \"${TUTTI_${name}}\", expected AUTO, ON or OFF")
    endif()
  endforeach()
endfunction()

function(tutti_look_for part out)
  string(TOUPPER ${part} name)
  set(${out} TRUE PARENT_SCOPE)
  if(TUTTI_${name} STREQUAL "OFF")
    set(${out} FALSE PARENT_SCOPE)
  endif()
endfunction()

function(tutti_part part found looked_for remedy)
  string(TOUPPER ${part} name)
  if(${found} AND NOT TUTTI_${name} STREQUAL "OFF")
    set(TUTTI_FOUND ${TUTTI_FOUND} ${part} PARENT_SCOPE)
  elseif(TUTTI_${name} STREQUAL "ON")
    message(FATAL_ERROR "TUTTI_${name} is ON, but ${part} is not complete. Looked for: ${looked_for}. ${remedy}, or set "
                        "TUTTI_${name} to AUTO or OFF.")
  endif()
endfunction()
