/* Whose file is it: the system's? Root's, or, where our user namespace maps only some owners, one
 * that it does not map (user_namespaces(7) shows them all as the overflow uid): such a file is of
 * the system outside. Private to this room. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

bool owner_is_system(uid_t uid);
