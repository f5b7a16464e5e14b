/* slow_names.c -- a name server that does not answer: LD_PRELOAD=libslow_names.so.   SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **list)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

    if (name && strcmp(name, "slow.test") == 0 && !(hints && hints->ai_flags & AI_NUMERICHOST)) {
        sleep(30);
        return EAI_AGAIN;
    }
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(name, service, hints, list);
}
