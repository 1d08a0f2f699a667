/* The five macros of the project: ownership made visible where it is declared. */
#pragma once
#include <stddef.h>
#include <stdlib.h>

/* Runs FN(&variable) when the variable leaves its scope. */
#define CLEANUP(fn) __attribute__((cleanup(fn)))

/* DEFINE_FREEP(struct x *, x_free) makes x_freep(), for CLEANUP(x_freep) struct x *x = NULL. */
#define DEFINE_FREEP(type, fn)                                                                     \
    static inline void fn##p(type *p)                                                              \
    {                                                                                              \
        fn(*p);                                                                                    \
    }

/* The value of P, which becomes NULL: hands ownership on. */
#define TAKE(p)                                                                                    \
    __extension__({                                                                                \
        __typeof__(p) *take_p_ = &(p);                                                             \
        __typeof__(p) take_v_ = *take_p_;                                                          \
        *take_p_ = NULL;                                                                           \
        take_v_;                                                                                   \
    })

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void freep(void *p)
{
    free(*(void **)p);
}
