# Files that become part of a program. embed(NAME FILE…) makes gen/NAME.h with one
# `static const struct embedded NAME[]` of {name, bytes, len}, ended by a row of NULL.
function(embed room name)
  set(out ${CMAKE_BINARY_DIR}/gen/${name}.h)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DNAME=${name} "-DFILES=${ARGN}"
            -P ${CMAKE_SOURCE_DIR}/server/embed_run.cmake
    DEPENDS ${ARGN} ${CMAKE_SOURCE_DIR}/server/embed_run.cmake VERBATIM)
  add_custom_target(embed_${name} DEPENDS ${out})
  add_dependencies(cordon_${room} embed_${name})
endfunction()

file(GLOB sql CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/schema/sql/*.sql)
embed(store schema_sql ${sql})
embed(api schema_openapi ${CMAKE_SOURCE_DIR}/schema/openapi.json)
file(GLOB web CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/webui/*.html ${CMAKE_SOURCE_DIR}/webui/*.css
     ${CMAKE_SOURCE_DIR}/webui/*.js ${CMAKE_SOURCE_DIR}/webui/*.svg)
embed(api webui_files ${web})
# profiles/NAME.calls: a line is the name of a system call and what becomes of it. Each file becomes
# `#define PROFILE_NAME_CALLS(ROW)` in gen/profiles.h: ROW(name, word) a line, read by render/seccomp.
file(GLOB call_lists CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/profiles/*.calls)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${call_lists})
set(text "/* Made at build time from profiles/. */\n#pragma once\n")
foreach(list ${call_lists})
  get_filename_component(name ${list} NAME_WE)
  string(TOUPPER ${name} name)
  string(APPEND text "#define PROFILE_${name}_CALLS(ROW)")
  file(STRINGS ${list} lines)
  foreach(line IN LISTS lines)
    if(line MATCHES "^([a-z_][a-z0-9_]*) ([A-Z]+)$")
      string(APPEND text " \\\n    ROW(${CMAKE_MATCH_1}, ${CMAKE_MATCH_2})")
    elseif(NOT line MATCHES "^(#.*)?$")
      message(FATAL_ERROR "${list}: not a call and a word: ${line}")
    endif()
  endforeach()
  string(APPEND text "\n")
endforeach()
file(WRITE ${CMAKE_BINARY_DIR}/gen/profiles.h.new "${text}")
configure_file(${CMAKE_BINARY_DIR}/gen/profiles.h.new ${CMAKE_BINARY_DIR}/gen/profiles.h COPYONLY)
