/*
 * twinlink_websocket.h - drives a node over a WebSocket connection (RFC 6455) to a listener, as a connector, on POSIX
 * sockets.  No TLS.  All calls belong to the link thread; nothing is allocated, but where a connection fails and the
 * program has set a locale: strerror() may then load its texts.
 */
#ifndef TWINLINK_WEBSOCKET_H
#define TWINLINK_WEBSOCKET_H

#include "twinlink.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct twinlink_websocket twinlink_websocket;

struct twinlink_websocket_config {
  const char *host; /* an IPv4 or IPv6 address: names are not looked up */
  uint16_t port;
  const struct twinlink_config *node; /* which twinlink_init() was given: its epoch and longest payloads count */
};

TWINLINK_API size_t twinlink_websocket_memory_octets(const struct twinlink_websocket_config *config);

/* In the caller's memory, aligned to 64 octets, which is the caller's again after twinlink_websocket_close().  What the
 * configuration points to is copied.  NULL: the memory is too small, or the address is none. */
TWINLINK_API twinlink_websocket *twinlink_websocket_init(void *memory, size_t octets,
                                                         const struct twinlink_websocket_config *config);

/* Connects if need be, waits up to so long for something to read, and does what is due.  To be called again and again:
 * the slot thread does not end the wait, so what it sends may leave that much later. */
TWINLINK_API void twinlink_websocket_step(twinlink_websocket *socket, twinlink *link, uint64_t wait_ns);

/* Says that the session ends, and gives what is left so long to leave. */
TWINLINK_API void twinlink_websocket_close(twinlink_websocket *socket, twinlink *link, uint64_t within_ns);

TWINLINK_API bool twinlink_websocket_is_open(const twinlink_websocket *socket);

/* Why there is no connection, or why the last one ended; NULL: none has failed.  Valid until the next call. */
TWINLINK_API const char *twinlink_websocket_problem(const twinlink_websocket *socket);

/* The clocks that the driver uses: monotonic, and Unix time, in ns. */
TWINLINK_API uint64_t twinlink_mono_ns(void);
TWINLINK_API uint64_t twinlink_now_ns(void);

#ifdef __cplusplus
}
#endif

#endif
