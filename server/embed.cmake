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
if(sql)
  embed(store schema_sql ${sql})
endif()
if(EXISTS ${CMAKE_SOURCE_DIR}/schema/openapi.json)
  embed(api schema_openapi ${CMAKE_SOURCE_DIR}/schema/openapi.json)
endif()
file(GLOB web CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/webui/*.html ${CMAKE_SOURCE_DIR}/webui/*.css
     ${CMAKE_SOURCE_DIR}/webui/*.js ${CMAKE_SOURCE_DIR}/webui/*.svg)
if(web)
  embed(api webui_files ${web})
endif()
file(GLOB profile_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/profiles/*)
if(profile_files)
  embed(render profiles ${profile_files})
  add_dependencies(cordon_policy embed_profiles)
endif()
