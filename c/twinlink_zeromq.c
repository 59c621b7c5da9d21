/* twinlink_zeromq.c - see twinlink_zeromq.h and "ZeroMQ" in docs/protocol.md. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* ppoll */
#endif
#include "twinlink_zeromq.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

enum {
  READ_MESSAGES = 256,         /* in a row, before anything is sent */
  QUEUED_MESSAGES = 100000,    /* libzmq drops what is beyond that, and the node retransmits it */
  HEARTBEAT_MS = 300, LIFETIME_MS = 1000, HANDSHAKE_MS = 2000, RECONNECT_MS = 50,
  LEAST_MAXIMUM = 262176       /* of a message: a hello is as long, at most */
};

static uint64_t clock_ns(clockid_t clock)
{
  struct timespec time;
  clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static bool set(void *socket, int option, int value)
{
  return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

static bool set_options(void *socket)
{
  return set(socket, ZMQ_LINGER, 0) && set(socket, ZMQ_SNDHWM, QUEUED_MESSAGES) &&
         set(socket, ZMQ_RCVHWM, QUEUED_MESSAGES) && set(socket, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS) &&
         set(socket, ZMQ_HEARTBEAT_TIMEOUT, LIFETIME_MS) && set(socket, ZMQ_HEARTBEAT_TTL, LIFETIME_MS) &&
         set(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) && set(socket, ZMQ_RECONNECT_IVL, RECONNECT_MS) &&
         set(socket, ZMQ_IPV6, 1);
}

static bool subscribe(void *socket, const char *prefix)
{
  return zmq_setsockopt(socket, ZMQ_SUBSCRIBE, prefix, strlen(prefix)) == 0;
}

static bool reach(void *socket, const char *host, unsigned port)
{
  char endpoint[128];
  int octets = snprintf(endpoint, sizeof endpoint, strchr(host, ':') != NULL ? "tcp://[%s]:%u" : "tcp://%s:%u", host, port);
  return octets > 0 && octets < (int)sizeof endpoint && zmq_connect(socket, endpoint) == 0;
}

static bool open_sockets(struct twinlink_zeromq *socket, const char *host, uint16_t port, size_t receive_octets)
{
  int64_t longest = (int64_t)receive_octets + TWINLINK_HEADER_OCTETS;
  longest = longest < LEAST_MAXIMUM ? LEAST_MAXIMUM : longest;
  size_t octets = sizeof socket->fd;
  return socket->in != NULL && socket->out != NULL && set_options(socket->in) && set_options(socket->out) &&
         zmq_setsockopt(socket->in, ZMQ_MAXMSGSIZE, &longest, sizeof longest) == 0 &&
         subscribe(socket->in, "traffic/_link") && subscribe(socket->in, "ack/") && subscribe(socket->in, "traffic/") &&
         reach(socket->in, host, port) && reach(socket->out, host, port + 1u) &&
         zmq_getsockopt(socket->in, ZMQ_FD, &socket->fd, &octets) == 0;
}

static void close_sockets(struct twinlink_zeromq *socket)
{
  if (socket->in != NULL)
    zmq_close(socket->in);
  if (socket->out != NULL)
    zmq_close(socket->out);
  zmq_ctx_term(socket->context);
}

bool twinlink_zeromq_init(struct twinlink_zeromq *socket, const char *host, uint16_t port, size_t receive_octets)
{
  *socket = (struct twinlink_zeromq){.context = zmq_ctx_new(), .drained_ns = clock_ns(CLOCK_MONOTONIC)};
  if (socket->context == NULL)
    return false;
  socket->in = zmq_socket(socket->context, ZMQ_SUB);
  socket->out = zmq_socket(socket->context, ZMQ_PUB);
  if (open_sockets(socket, host, port, receive_octets))
    return true;
  int error = zmq_errno();
  close_sockets(socket);
  errno = error;
  return false;
}

/* Takes the next message; false: there is none.  One that does not have two parts is none of this protocol. */
static bool read_message(struct twinlink_zeromq *socket, twinlink *link)
{
  zmq_msg_t topic, frame;
  zmq_msg_init(&topic), zmq_msg_init(&frame);
  bool got = zmq_msg_recv(&topic, socket->in, ZMQ_DONTWAIT) >= 0;
  bool two = got && zmq_msg_more(&topic) && zmq_msg_recv(&frame, socket->in, ZMQ_DONTWAIT) >= 0;
  bool whole = two && !zmq_msg_more(&frame);
  if (got) /* of another number of parts it has no frame, which the node counts */
    twinlink_receive(link, zmq_msg_data(&topic), zmq_msg_size(&topic), zmq_msg_data(&frame),
                     whole ? zmq_msg_size(&frame) : 0, clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_REALTIME));
  while (two && zmq_msg_more(&frame) && zmq_msg_recv(&frame, socket->in, ZMQ_DONTWAIT) >= 0)
    ;
  zmq_msg_close(&topic), zmq_msg_close(&frame);
  return got;
}

static void transmit(struct twinlink_zeromq *socket, twinlink *link)
{
  struct twinlink_frame frame;
  while (twinlink_poll_transmit(link, &frame, clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_REALTIME))) {
    zmq_send(socket->out, frame.topic, frame.topic_octets, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(socket->out, frame.octets, frame.size, ZMQ_DONTWAIT);
  }
}

/* The descriptor reports only what comes after libzmq was found empty, so there is no wait before that. */
static void wait_readable(const struct twinlink_zeromq *socket, const twinlink *link, uint64_t wait_ns)
{
  uint64_t now = clock_ns(CLOCK_MONOTONIC), timeout = twinlink_next_timeout(link);
  uint64_t left = timeout > now ? timeout - now : 0;
  left = left < wait_ns ? left : wait_ns;
  struct timespec time = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
  if (socket->drained)
    ppoll(&(struct pollfd){socket->fd, POLLIN, 0}, 1, &time, NULL);
}

void twinlink_zeromq_step(struct twinlink_zeromq *socket, twinlink *link, uint64_t wait_ns)
{
  wait_readable(socket, link, wait_ns);
  int read = 0;
  while (read < READ_MESSAGES && read_message(socket, link))
    read++;
  socket->drained = read < READ_MESSAGES;
  uint64_t now = clock_ns(CLOCK_MONOTONIC);
  if (socket->drained)
    socket->drained_ns = now;
  twinlink_on_time(link, now, clock_ns(CLOCK_REALTIME), socket->drained_ns);
  transmit(socket, link);
}

void twinlink_zeromq_close(struct twinlink_zeromq *socket, twinlink *link, uint64_t within_ns)
{
  twinlink_close(link, clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_REALTIME));
  transmit(socket, link);
  set(socket->out, ZMQ_LINGER, (int)(within_ns / 1000000u));
  close_sockets(socket);
}
