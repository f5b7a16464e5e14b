/* socket.h -- sockets with deadlines, and their addresses.   SPDX-License-Identifier: MIT
 *
 * All sockets are non-blocking and close on exec; a deadline is a time of tutti__now_ms(). */
#ifndef TUTTI_COMM_BOOTSTRAP_SOCKET_H
#define TUTTI_COMM_BOOTSTRAP_SOCKET_H

#include "base/base.h"

#include <poll.h>
#include <sys/socket.h>

typedef struct tutti__address {
    struct sockaddr_storage at;
    socklen_t length;
} tutti__address;

/* "10.0.0.1:29500", "[::1]:29500", "@unix". */
void tutti__address_text(const tutti__address *address, char *text, size_t capacity);
/* The same without the port: "10.0.0.1", "[::1]". */
void tutti__address_host_text(const tutti__address *address, char *text, size_t capacity);
bool tutti__address_is_loopback(const tutti__address *address);
int tutti__address_port(const tutti__address *address);
void tutti__address_set_port(tutti__address *address, int port);
/* The interface number of a link-local IPv6 address, which is valid on this host only: an address from another host gets
 * this host's number of the link. 0: the address needs none. */
uint32_t tutti__address_scope(const tutti__address *address);
void tutti__address_set_scope(tutti__address *address, uint32_t scope);
/* An address of host, the same on every host; also "::1", "[::1]", "fe80::1%eth0". NOT_FOUND if the name is unknown, perhaps only
 * as yet. */
tutti_status tutti__resolve(tutti__address *address, const char *host, int port);
/* The same without asking a name server: NOT_FOUND for names, except localhost. */
tutti_status tutti__resolve_numeric(tutti__address *address, const char *host, int port);
/* The address of an interface that the list allows (see docs/hosts.md), preferably of the family AF_INET or AF_INET6 (0:
 * IPv4); ARG, naming the interfaces there are, if none has an address. */
tutti_status tutti__interface_address(tutti__address *address, const char *list, int family);

/* This host's address for others that reach `host` (host_address.c). Its own name counts as any interface but the loopback's.
 * NOT_FOUND, IO if there is no way to it. */
tutti_status tutti__host_address(tutti__address *address, const char *host);

/* Listens; `address` becomes the bound one. A port in use is IO with the remedy. */
tutti_status tutti__listen(tutti__address *address, int *fd_p);
/* A socket that is connecting: poll it for writing, then call end; -1 with errno. */
int tutti__connect_begin(const tutti__address *address);
/* 0: connected; or an errno. */
int tutti__connect_end(int fd);
/* -1 with errno; EAGAIN if no client waits. *from: its address, unless NULL. */
int tutti__accept(int listener, tutti__address *from);

/* Milliseconds left, for poll(): at least 0. */
int tutti__poll_ms(double deadline);
/* Makes all socket waits of this thread end with ECANCELED when `fd` becomes readable, including those for stores and for
 * peers of a group that is being made; the calls that waited fail with IO or PEER. -1, the initial value: none. */
void tutti__sockets_heed(int fd);
bool tutti__sockets_heeds(void);
/* The rank whose host could not be reached since `heed` was called; -1: all could. */
void tutti__sockets_note_unreached(int rank);
int tutti__sockets_unreached(void);
/* Whether it is readable. */
bool tutti__sockets_called_off(void);
/* poll() of n descriptors and of that one; fds must have room for n + 1. */
int tutti__sockets_poll(struct pollfd *fds, size_t n, int ms);
/* Complete transfers: 0, or an errno (ETIMEDOUT at the deadline, ECONNRESET at the end of the stream). */
int tutti__send_all(int fd, const void *p, size_t bytes, double deadline);
int tutti__receive_all(int fd, void *p, size_t bytes, double deadline);

#endif
