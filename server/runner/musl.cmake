# The runner with musl in place of glibc where its files are (package musl-dev): every session has
# two of it, and it is a fifth of the size. The same compiler and flags; what musl's headers lack
# (linux/*) the compiler finds in its own places.
string(REPLACE "-gnu" "-musl" musl_triplet "${CMAKE_C_LIBRARY_ARCHITECTURE}")
set(musl_lib /usr/lib/${musl_triplet})
set(musl_include /usr/include/${musl_triplet})
set(musl_why "no musl")
if(musl_triplet MATCHES "-musl" AND EXISTS ${musl_lib}/rcrt1.o AND EXISTS ${musl_include}/bits/syscall.h)
  set(musl_why "musl before 1.2.3")
  file(STRINGS ${musl_include}/bits/syscall.h musl_is_new REGEX "SYS_landlock_restrict_self")
endif()
if(NOT musl_is_new)
  message(STATUS "cordon-runner: ${musl_why}, linked with glibc (larger)")
  return()
endif()

set(sources)
foreach(room runner wire base)
  file(GLOB more CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/server/${room}/*.c)
  list(APPEND sources ${more})
endforeach()
list(FILTER sources EXCLUDE REGEX "/runner/main\\.c$")
list(FILTER sources EXCLUDE REGEX "/base/fd_spawn\\.c$") # glibc only, and not the runner's
add_library(cordon_musl INTERFACE)
target_compile_options(cordon_musl INTERFACE -isystem ${musl_include} -ffunction-sections -fdata-sections
  -Wno-sign-compare) # its CMSG_NXTHDR; the rooms' other build has the warning
target_link_options(cordon_musl INTERFACE -nostdlib -Wl,--gc-sections)
add_library(cordon_runner_musl STATIC ${sources})
target_link_libraries(cordon_runner_musl PRIVATE cordon_flags cordon_musl)
add_dependencies(cordon-runner cordon_runner_musl)
set_property(TARGET cordon-runner PROPERTY LINK_LIBRARIES cordon_flags cordon_musl
  $<TARGET_FILE:cordon_runner_musl> ${musl_lib}/rcrt1.o ${musl_lib}/crti.o ${musl_lib}/libc.a gcc
  ${musl_lib}/libc.a ${musl_lib}/crtn.o)
