/* check_network.c -- loopback, names, interfaces, ports, firewall.   SPDX-License-Identifier: MIT */
#include "cli/doctor/doctor.h"
#include "comm/comm.h"
#include "launch/process/port_owner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Loopback ------------------------------------------------------------------------------------------- */

static struct sockaddr_storage loopback(int family, int port, socklen_t *bytes_p)
{
    struct sockaddr_storage at = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)(void *)&at;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)&at;

    if (family == AF_INET6)
        *six = (struct sockaddr_in6){.sin6_family = AF_INET6,
                                     .sin6_port = htons((uint16_t)port),
                                     .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    else
        *four = (struct sockaddr_in){.sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)port),
                                     .sin_addr = {htonl(INADDR_LOOPBACK)}};
    *bytes_p = family == AF_INET6 ? sizeof *six : sizeof *four;
    return at;
}

/* Sends a byte from one socket to another within a second. 0 or an errno. */
static int pass_byte(int listener, int client, const struct sockaddr_storage *at, socklen_t bytes)
{
    struct pollfd ready = {listener, POLLIN, 0};
    char byte = 'T';
    int server, error = 0;

    if (connect(client, (const struct sockaddr *)at, bytes) != 0 && errno != EINPROGRESS)
        return errno;
    if (poll(&ready, 1, 1000) != 1)
        return ETIMEDOUT;
    server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (server < 0)
        return errno;
    ready = (struct pollfd){client, POLLIN, 0};
    if (send(server, &byte, 1, MSG_NOSIGNAL) != 1)
        error = errno;
    else if (poll(&ready, 1, 1000) != 1 || recv(client, &byte, 1, 0) != 1)
        error = ETIMEDOUT;
    close(server);
    return error;
}

static int try_loopback(int family)
{
    socklen_t bytes;
    struct sockaddr_storage at = loopback(family, 0, &bytes);
    int listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), error;
    int client = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (listener < 0 || client < 0 || bind(listener, (struct sockaddr *)&at, bytes) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&at, &bytes) != 0)
        error = errno;
    else
        error = pass_byte(listener, client, &at, bytes);
    if (listener >= 0)
        close(listener);
    if (client >= 0)
        close(client);
    return error;
}

void tutti__check_loopback(tutti__doctor *d)
{
    int four = try_loopback(AF_INET), six = try_loopback(AF_INET6);

    if (four) {
        tutti__find(d, TUTTI__PROBLEM, "loopback",
                    "127.0.0.1: %s: ranks of this machine cannot meet", strerror(four));
        tutti__remedy(d, "ip link set lo up, and let the firewall pass the interface lo");
        return;
    }
    tutti__find(d, TUTTI__FINE, "loopback", "127.0.0.1 works; ::1 %s",
                six ? "does not (no IPv6, which is fine)" : "too");
}

/* ---- Names ---------------------------------------------------------------------------------------------- */

static void address_text(const struct sockaddr *address, char *text, size_t bytes)
{
    const void *at =
        address->sa_family == AF_INET6
            ? (const void *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr
            : (const void *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;

    if (!inet_ntop(address->sa_family, at, text, (socklen_t)bytes))
        snprintf(text, bytes, "?");
}

static bool is_loopback(const char *text)
{
    return strncmp(text, "127.", 4) == 0 || strcmp(text, "::1") == 0;
}

/* This machine's address in the network: that of the interface with the default route; sends nothing.
 * "" without a route. */
static void outward_address(char *text, size_t bytes)
{
    struct sockaddr_in away = {
        .sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(0xc0000201)}};
    socklen_t length = sizeof away;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    *text = '\0';
    if (fd >= 0 && connect(fd, (struct sockaddr *)&away, sizeof away) == 0 &&
        getsockname(fd, (struct sockaddr *)&away, &length) == 0)
        address_text((struct sockaddr *)&away, text, bytes);
    if (fd >= 0)
        close(fd);
}

void tutti__check_hostname(tutti__doctor *d)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *list = NULL;
    char name[256] = "", at[64] = "", outward[64];
    double begin = tutti__now_ms(), took;
    int error;

    if (gethostname(name, sizeof name - 1) != 0 || !*name) {
        tutti__find(d, TUTTI__WARNING, "host name", "this machine has none");
        tutti__remedy(d, "hostname NAME, and a line for it in /etc/hosts");
        return;
    }
    error = getaddrinfo(name, NULL, &hints, &list);
    took = tutti__now_ms() - begin;
    outward_address(outward, sizeof outward);
    if (error) {
        tutti__find(
            d, TUTTI__WARNING, "host name",
            "%s has no address (%s): MASTER_ADDR=$(hostname) does not work, nor do some MPIs", name,
            gai_strerror(error));
        tutti__remedy(d, "add \"%s %s\" to /etc/hosts", *outward ? outward : "127.0.1.1", name);
        return;
    }
    address_text(list->ai_addr, at, sizeof at);
    freeaddrinfo(list);
    if (took > 1000) {
        tutti__find(d, TUTTI__WARNING, "host name", "%s is %s, but the look-up took %.1f s", name,
                    at, took * 1e-3);
        tutti__remedy(
            d, "add \"%s %s\" to /etc/hosts, or correct the name servers in /etc/resolv.conf", at,
            name);
    } else if (is_loopback(at) && *outward && !is_loopback(outward)) {
        tutti__find(
            d, TUTTI__WARNING, "host name",
            "%s is %s here: with MASTER_ADDR=$(hostname) other hosts look for rank 0 on themselves "
            "(on one host this does not matter)",
            name, at);
        tutti__remedy(d, "give %s as --master-addr, or in /etc/hosts in place of %s", outward, at);
    } else {
        tutti__find(d, TUTTI__FINE, "host name", "%s is %s", name, at);
    }
}

/* ---- Interfaces ----------------------------------------------------------------------------------------- */

static void list_interfaces(char *text, size_t bytes)
{
    struct ifaddrs *all = NULL;
    size_t used = 0;

    *text = '\0';
    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
        char at[64];

        if ((family != AF_INET && family != AF_INET6) || !(i->ifa_flags & IFF_UP) || used >= bytes)
            continue;
        address_text(i->ifa_addr, at, sizeof at);
        used += (size_t)snprintf(text + used, bytes - used, "%s%s %s", used ? ", " : "",
                                 i->ifa_name, at);
    }
    freeifaddrs(all);
}

void tutti__check_interfaces(tutti__doctor *d)
{
    char list[800], chosen[64], outward[64];

    list_interfaces(list, sizeof list);
    tutti__find(d, *list ? TUTTI__FINE : TUTTI__NOTE, "interfaces", "%s",
                *list ? list : "none with an address");
    if (tutti__chosen_address(chosen, sizeof chosen) != TUTTI_OK) {
        tutti__find(d, TUTTI__PROBLEM, "chosen interface", "%s", tutti_last_error());
        tutti__remedy(d, "correct or unset TUTTI_SOCKET_IFNAME");
        return;
    }
    outward_address(outward, sizeof outward);
    if (*chosen)
        tutti__find(d, TUTTI__FINE, "chosen interface", "%s, by TUTTI_SOCKET_IFNAME=%s", chosen,
                    tutti__env_text(TUTTI__ENV_SOCKET_IFNAME));
    else
        tutti__find(
            d, TUTTI__FINE, "chosen interface",
            "127.0.0.1 on one host; between hosts the one from which MASTER_ADDR is reached%s%s "
            "(TUTTI_SOCKET_IFNAME chooses another)",
            *outward ? ", by default " : "", outward);
}

/* ---- Ports ---------------------------------------------------------------------------------------------- */

static bool port_is_free(int port)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    bool is_free;

    if (fd < 0)
        return true;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    is_free = bind(fd, (struct sockaddr *)&any, sizeof any) == 0 && listen(fd, 1) == 0;
    close(fd);
    return is_free;
}

static void check_port(tutti__doctor *d, int port, const char *what, const char *flag)
{
    char owner[128];

    if (tutti__port_owner(port, owner, sizeof owner)) {
        tutti__find(d, TUTTI__WARNING, "port", "%d (%s) is taken by %s", port, what, owner);
    } else if (!port_is_free(port)) {
        tutti__find(d, TUTTI__WARNING, "port", "%d (%s) is in use, by an unknown process", port,
                    what);
    } else {
        tutti__find(d, TUTTI__FINE, "port", "%d (%s) is free", port, what);
        return;
    }
    tutti__remedy(d, "%s another port; on one host tutti run chooses a free one by itself", flag);
}

void tutti__check_ports(tutti__doctor *d)
{
    check_port(d, 29500, "MASTER_PORT's usual value", "set MASTER_PORT or --master-port to");
    check_port(d, 29400, "the rendezvous' usual port", "give --rdzv-endpoint HOST:PORT");
}

void tutti__check_port_range(tutti__doctor *d)
{
    char text[64];
    int low, high;
    int64_t backlog;

    if (!tutti__slurp("/proc/sys/net/ipv4/ip_local_port_range", text, sizeof text) ||
        sscanf(text, "%d %d", &low, &high) != 2)
        return;
    if (high - low < 1024) {
        tutti__find(d, TUTTI__WARNING, "port range", "only %d to %d for outgoing connections", low,
                    high);
        tutti__remedy(d, "sysctl net.ipv4.ip_local_port_range=\"32768 60999\"");
    } else if (low <= 29500 && 29500 <= high) {
        tutti__find(d, TUTTI__NOTE, "port range",
                    "%d to %d: the kernel may give 29500 to an outgoing connection just before "
                    "rank 0 needs it",
                    low, high);
        tutti__remedy(d, "sysctl net.ipv4.ip_local_reserved_ports=29400,29500");
    } else {
        tutti__find(d, TUTTI__FINE, "port range", "%d to %d for outgoing connections", low, high);
    }
    if (tutti__slurp_int64("/proc/sys/net/core/somaxconn", &backlog) && backlog < d->ranks) {
        tutti__find(d, TUTTI__WARNING, "waiting connections",
                    "at most %lld per port, but %d ranks connect to rank 0 at once",
                    (long long)backlog, d->ranks);
        tutti__remedy(d, "sysctl net.core.somaxconn=4096");
    }
}

/* ---- Firewall ------------------------------------------------------------------------------------------- */

/* Rules of nft or iptables, which only root may read. NULL: not read. */
static const char *read_rules(char *text, size_t bytes)
{
    static const char *const nft[] = {"nft", "list", "ruleset", NULL};
    static const char *const iptables[] = {"iptables", "-S", "INPUT", NULL};

    if (geteuid() == 0 && tutti__run_program(nft, text, bytes, 2000) == 0)
        return "nft";
    if (geteuid() == 0 && tutti__run_program(iptables, text, bytes, 2000) == 0)
        return "iptables";
    return NULL;
}

void tutti__check_firewall(tutti__doctor *d)
{
    static char text[256 << 10];
    const char *tool = read_rules(text, sizeof text);
    bool strict;

    if (!tool) {
        tutti__find(d, TUTTI__NOTE, "firewall",
                    "not known (%s); ranks on several hosts need TCP on all ports between them",
                    geteuid() == 0 ? "neither nft nor iptables is installed"
                                   : "only root may read its rules");
        return;
    }
    strict = strstr(text, "policy drop") || strstr(text, "-P INPUT DROP") ||
             strstr(text, " drop") || strstr(text, "reject") || strstr(text, "-j DROP") ||
             strstr(text, "-j REJECT");
    if (!strict) {
        tutti__find(d, TUTTI__FINE, "firewall", "no rule of %s drops or rejects", tool);
        return;
    }
    tutti__find(d, TUTTI__NOTE, "firewall",
                "%s has rules that drop or reject: ranks on several hosts need TCP on all ports "
                "between them",
                tool);
    tutti__remedy(d, "let TCP from the job's hosts in (%s)",
                  strcmp(tool, "nft") == 0
                      ? "nft add rule inet filter input ip saddr ADDRESSES accept"
                      : "iptables -I INPUT -s ADDRESSES -j ACCEPT");
}
