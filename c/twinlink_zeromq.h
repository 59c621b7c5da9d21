/*
 * twinlink_zeromq.h - drives a node over ZeroMQ to a listener, as a connector, with libzmq 4.2 or newer.  No CURVE.
 * All calls belong to the link thread.  libzmq has a thread of its own, and allocates.
 */
#ifndef TWINLINK_ZEROMQ_H
#define TWINLINK_ZEROMQ_H

#include "twinlink.h"

#ifdef __cplusplus
extern "C" {
#endif

struct twinlink_zeromq { /* of the driver: not to be changed */
  void *context, *in, *out;
  int fd;
  uint64_t drained_ns;
  bool drained;
};

/* Connects to the listener at this port and the next one up; receive_octets: of the longest payload that the node takes.
 * False: libzmq says why in zmq_errno(). */
TWINLINK_API bool twinlink_zeromq_init(struct twinlink_zeromq *socket, const char *host, uint16_t port,
                                       size_t receive_octets);

/* Waits up to so long for something to read, and does what is due; to be called again and again. */
TWINLINK_API void twinlink_zeromq_step(struct twinlink_zeromq *socket, twinlink *link, uint64_t wait_ns);

/* Says that the session ends, and gives what is left so long to leave. */
TWINLINK_API void twinlink_zeromq_close(struct twinlink_zeromq *socket, twinlink *link, uint64_t within_ns);

#ifdef __cplusplus
}
#endif

#endif
