/* twinlink_websocket.c - see twinlink_websocket.h and "WebSocket" in docs/protocol.md. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* ppoll */
#endif
#include "twinlink_websocket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum state { CLOSED, CONNECTING, GREETING, OPEN };
enum opcode { CONTINUATION = 0, TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10 };
enum {
  HEAD_OCTETS = 14,            /* of a WebSocket frame, at most */
  CONTROL_OCTETS = 125 + 6,    /* of a ping or pong with its head */
  READ_OCTETS = 65536,         /* at a time, beside what a long message needs */
  UNSENT_IN_KERNEL = 262144,   /* more would be ahead of the next hello */
  REPLY_OCTETS = 4096,         /* of the listener's HTTP reply */
  HELLO_OCTETS = 262144        /* of a listener's hello, at most */
};
static const uint64_t RETRY_NS = 50000000, ATTEMPT_NS = 1000000000, SILENT_NS = 3000000000;

/* Key and answer are the example of RFC 6455 section 1.3.  A random key would show a reply that a cache had kept, of
 * which there is none in front of a listener; the check of the fixed pair needs no SHA-1. */
static const char KEY[] = "dGhlIHNhbXBsZSBub25jZQ==", ACCEPT[] = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

struct buffer { uint8_t *of; size_t first, end, room; };

struct twinlink_websocket {
  struct sockaddr_storage address;
  socklen_t address_octets;
  char host[64];
  uint16_t port;
  uint64_t epoch;
  size_t longest_out, longest_in;
  enum state state;
  int fd;
  uint64_t since_ns, heard_ns, drained_ns; /* in this state; something came; it was read to the end */
  uint64_t mask;
  struct buffer in, out, message; /* message: the pieces of one that comes in several frames */
  bool in_message, drained;
  char problem[160]; /* that ended the last connection or attempt; empty: none has ended */
};

static uint64_t clock_ns(clockid_t clock)
{
  struct timespec time;
  clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t twinlink_mono_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
uint64_t twinlink_now_ns(void) { return clock_ns(CLOCK_REALTIME); }
static uint64_t age_ns(uint64_t then_ns) { return twinlink_mono_ns() - then_ns; }
bool twinlink_websocket_is_open(const twinlink_websocket *socket) { return socket->state == OPEN; }

const char *twinlink_websocket_problem(const twinlink_websocket *socket)
{
  return socket->problem[0] != 0 ? socket->problem : NULL;
}

static size_t longest(size_t payload) { return payload + TWINLINK_HEADER_OCTETS + 256; }

/* A hello may be longer than each payload. */
static size_t longest_in(const struct twinlink_websocket_config *config)
{
  size_t payload = config->node->receive_max_octets;
  return longest(payload < HELLO_OCTETS ? HELLO_OCTETS : payload);
}

static size_t in_room(const struct twinlink_websocket_config *config)
{
  return longest_in(config) + HEAD_OCTETS + READ_OCTETS;
}

static size_t out_room(const struct twinlink_websocket_config *config)
{
  size_t payload = config->node->send_max_octets != 0 ? config->node->send_max_octets : TWINLINK_MAX_PAYLOAD;
  size_t frame = longest(payload < 65536 ? 65536 : payload); /* a hello is shorter than that */
  return 2 * (frame + HEAD_OCTETS) + CONTROL_OCTETS;
}

static size_t aligned(size_t octets) { return (octets + 63) & ~(size_t)63; }

size_t twinlink_websocket_memory_octets(const struct twinlink_websocket_config *config)
{
  return aligned(sizeof(twinlink_websocket)) + aligned(in_room(config)) + aligned(out_room(config)) +
         aligned(longest_in(config));
}

static bool set_address(twinlink_websocket *socket, const struct twinlink_websocket_config *config)
{
  struct sockaddr_in *four = (struct sockaddr_in *)&socket->address;
  struct sockaddr_in6 *six = (struct sockaddr_in6 *)&socket->address;
  if (inet_pton(AF_INET, config->host, &four->sin_addr) == 1) {
    four->sin_family = AF_INET, four->sin_port = htons(config->port);
    socket->address_octets = sizeof *four;
  } else if (inet_pton(AF_INET6, config->host, &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6, six->sin6_port = htons(config->port);
    socket->address_octets = sizeof *six;
  }
  return socket->address_octets > 0;
}

twinlink_websocket *twinlink_websocket_init(void *memory, size_t octets, const struct twinlink_websocket_config *config)
{
  if (octets < twinlink_websocket_memory_octets(config) || (uintptr_t)memory % 64 != 0 || strlen(config->host) >= 64)
    return NULL;
  twinlink_websocket *socket = memory;
  *socket = (twinlink_websocket){.port = config->port, .epoch = config->node->epoch, .fd = -1,
                                 .mask = config->node->epoch | 1};
  if (!set_address(socket, config))
    return NULL;
  memcpy(socket->host, config->host, strlen(config->host) + 1);
  socket->longest_in = longest_in(config);
  socket->longest_out = out_room(config) / 2;
  uint8_t *at = (uint8_t *)memory + aligned(sizeof *socket);
  socket->in = (struct buffer){at, 0, 0, in_room(config)};
  socket->out = (struct buffer){at + aligned(in_room(config)), 0, 0, out_room(config)};
  socket->message = (struct buffer){socket->out.of + aligned(out_room(config)), 0, 0, socket->longest_in};
  socket->drained_ns = socket->heard_ns = twinlink_mono_ns();
  return socket;
}

/* ---- The connection ---- */

static void enter(twinlink_websocket *socket, enum state state)
{
  socket->state = state;
  socket->since_ns = socket->heard_ns = twinlink_mono_ns();
}

/* `what` happened; error: its errno, or 0. */
static void disconnect(twinlink_websocket *socket, const char *what, int error)
{
  snprintf(socket->problem, sizeof socket->problem, "%s%s%s", what, error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
  if (socket->fd >= 0)
    close(socket->fd);
  socket->fd = -1;
  socket->in.first = socket->in.end = socket->out.first = socket->out.end = socket->message.end = 0;
  socket->in_message = false, socket->drained = true;
  enter(socket, CLOSED);
}

static void start_connecting(twinlink_websocket *at)
{
  int yes = 1, unsent = UNSENT_IN_KERNEL;
  at->fd = socket(at->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  enter(at, CONNECTING);
  if (at->fd < 0) {
    disconnect(at, "no socket", errno);
    return;
  }
  setsockopt(at->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(at->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
  if (connect(at->fd, (struct sockaddr *)&at->address, at->address_octets) < 0 && errno != EINPROGRESS)
    disconnect(at, "no connection", errno);
}

static void greet(twinlink_websocket *socket)
{
  int error = 0;
  socklen_t octets = sizeof error;
  if (getsockopt(socket->fd, SOL_SOCKET, SO_ERROR, &error, &octets) < 0 || error != 0) {
    disconnect(socket, "no connection", error);
    return;
  }
  const char *brackets = strchr(socket->host, ':') != NULL ? "[]" : "";
  int written = snprintf((char *)socket->out.of, socket->out.room,
                         "GET /?epoch=%016llx HTTP/1.1\r\nHost: %.1s%s%.1s:%u\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                         "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: twinlink.1\r\n\r\n",
                         (unsigned long long)socket->epoch, brackets, socket->host,
                         *brackets != 0 ? brackets + 1 : brackets, (unsigned)socket->port, KEY);
  socket->out.end = (size_t)written;
  enter(socket, GREETING);
}

/* Whether a line of the reply has this name and value, in any case of letters; the reply ends with a zero. */
static bool has_header(const char *reply, const char *name, const char *value)
{
  for (const char *line = strstr(reply, "\r\n"); line != NULL; line = strstr(line, "\r\n")) {
    line += 2;
    size_t at = 0;
    while (name[at] != 0 && (line[at] | 0x20) == (name[at] | 0x20))
      at++;
    if (name[at] != 0 || line[at++] != ':')
      continue;
    while (line[at] == ' ' || line[at] == '\t')
      at++;
    if (strncmp(line + at, value, strlen(value)) == 0)
      return true;
  }
  return false;
}

static void read_reply(twinlink_websocket *socket)
{
  struct buffer *in = &socket->in;
  char reply[REPLY_OCTETS + 1];
  size_t octets = in->end < REPLY_OCTETS ? in->end : REPLY_OCTETS;
  memcpy(reply, in->of, octets);
  reply[octets] = 0;
  const char *end = strstr(reply, "\r\n\r\n");
  if (end == NULL) {
    if (octets == REPLY_OCTETS)
      disconnect(socket, "the listener's reply to the handshake is too long", 0);
    return;
  }
  bool accepted = strncmp(reply, "HTTP/1.1 101", 12) == 0 && has_header(reply, "sec-websocket-accept", ACCEPT) &&
                  has_header(reply, "sec-websocket-protocol", "twinlink.1");
  if (!accepted) {
    char what[128];
    snprintf(what, sizeof what, "the listener refused the handshake, or is not twinlink's: %.*s",
             (int)strcspn(reply, "\r\n"), reply);
    for (char *c = what; *c != 0; c++) /* what a listener says must not control a terminal */
      *c = *c < 0x20 || *c > 0x7e ? '?' : *c;
    disconnect(socket, what, 0);
    return;
  }
  in->first = (size_t)(end - reply) + 4;
  enter(socket, OPEN);
}

/* ---- Frames of the WebSocket that leave ---- */

/* XORs with the mask, which begins anew with each frame, eight octets at a time. */
static void copy_masked(uint8_t *to, const uint8_t *from, size_t octets, const uint8_t mask[4], size_t phase)
{
  uint8_t turned[8];
  uint64_t word, wide;
  for (size_t i = 0; i < 8; i++)
    turned[i] = mask[(phase + i) % 4];
  memcpy(&wide, turned, 8);
  for (; octets >= 8; octets -= 8, to += 8, from += 8) {
    memcpy(&word, from, 8);
    word ^= wide;
    memcpy(to, &word, 8);
  }
  for (size_t i = 0; i < octets; i++)
    to[i] = from[i] ^ turned[i];
}

/* The head of a frame of so many octets; its mask is put into `mask`.  RFC 6455 asks for masks because of scripts in
 * browsers, which choose what is sent; here a plain generator will do. */
static size_t put_head(twinlink_websocket *socket, uint8_t *to, enum opcode opcode, size_t octets, uint8_t mask[4])
{
  size_t at = 2;
  socket->mask ^= socket->mask << 13, socket->mask ^= socket->mask >> 7, socket->mask ^= socket->mask << 17;
  to[0] = (uint8_t)(0x80 | opcode);
  if (octets < 126) {
    to[1] = (uint8_t)(0x80 | octets);
  } else {
    int width = octets < 65536 ? 2 : 8;
    to[1] = width == 2 ? 0x80 | 126 : 0x80 | 127;
    for (int i = 0; i < width; i++)
      to[at++] = (uint8_t)(octets >> 8 * (width - 1 - i));
  }
  memcpy(mask, &socket->mask, 4);
  memcpy(to + at, mask, 4);
  return at + 4;
}

static void put_message(twinlink_websocket *socket, const struct twinlink_frame *frame)
{
  uint8_t mask[4], topic[256];
  struct buffer *out = &socket->out;
  if (frame->topic_octets >= sizeof topic || frame->size > socket->longest_out - HEAD_OCTETS - sizeof topic)
    return; /* no such frame: the node drops what is longer than send_max_octets */
  topic[0] = (uint8_t)frame->topic_octets;
  memcpy(topic + 1, frame->topic, frame->topic_octets);
  size_t before = 1 + frame->topic_octets;
  out->end += put_head(socket, out->of + out->end, BINARY, before + frame->size, mask);
  copy_masked(out->of + out->end, topic, before, mask, 0);
  copy_masked(out->of + out->end + before, frame->octets, frame->size, mask, before);
  out->end += before + frame->size;
}

static void put_control(twinlink_websocket *socket, enum opcode opcode, const uint8_t *octets, size_t size)
{
  uint8_t mask[4];
  struct buffer *out = &socket->out;
  if (out->room - out->end < CONTROL_OCTETS)
    return; /* a pong that is missing is no harm: hellos come as well */
  out->end += put_head(socket, out->of + out->end, opcode, size, mask);
  copy_masked(out->of + out->end, octets, size, mask, 0);
  out->end += size;
}

static void flush(twinlink_websocket *socket)
{
  struct buffer *out = &socket->out;
  while (out->first < out->end) {
    ssize_t sent = send(socket->fd, out->of + out->first, out->end - out->first, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno != EAGAIN && errno != EINTR)
        disconnect(socket, "cannot send", errno);
      return;
    }
    out->first += (size_t)sent;
  }
  out->first = out->end = 0;
}

/* ---- Frames of the WebSocket that arrive ---- */

static void give_message(twinlink *link, const uint8_t *message, size_t octets)
{
  size_t head = octets > 0 ? 1u + message[0] : 0; /* with the topic; of a message that is shorter, nothing counts */
  head = head < octets ? head : octets;
  twinlink_receive(link, (const char *)message + (head > 0), head > 0 ? head - 1 : 0, message + head, octets - head,
                   twinlink_mono_ns(), twinlink_now_ns());
}

/* False: the connection is to be ended, as the frame breaks RFC 6455 or is longer than this node takes. */
static bool take_frame(twinlink_websocket *socket, twinlink *link, bool final, enum opcode opcode, const uint8_t *payload,
                       size_t octets)
{
  struct buffer *message = &socket->message;
  if (opcode >= CLOSE) {
    if (opcode == PING && octets <= 125)
      put_control(socket, PONG, payload, octets);
    return final && octets <= 125 && (opcode == PING || opcode == PONG);
  }
  if (opcode != BINARY && opcode != CONTINUATION)
    return opcode == TEXT && final; /* it is none of this protocol */
  if ((opcode == CONTINUATION) != socket->in_message)
    return false;
  if (final && opcode == BINARY) {
    give_message(link, payload, octets);
    return true;
  }
  if (octets > message->room - message->end)
    return false;
  if (octets > 0)
    memcpy(message->of + message->end, payload, octets);
  message->end += octets;
  socket->in_message = !final;
  if (final) {
    give_message(link, message->of, message->end);
    message->end = 0;
  }
  return true;
}

/* Takes the frames that are there; false: the connection is to be ended. */
static bool take_frames(twinlink_websocket *socket, twinlink *link)
{
  struct buffer *in = &socket->in;
  for (;;) {
    const uint8_t *at = in->of + in->first;
    size_t left = in->end - in->first, head = 2;
    if (left < 2)
      return true;
    uint64_t octets = at[1] & 0x7f;
    int width = octets == 126 ? 2 : octets == 127 ? 8 : 0;
    if ((at[0] & 0x70) != 0 || (at[1] & 0x80) != 0)
      return false; /* an extension, or a masked frame of a server */
    if (left < head + (size_t)width)
      return true;
    if (width > 0)
      octets = 0;
    for (int i = 0; i < width; i++)
      octets = octets << 8 | at[head++];
    if (octets > socket->longest_in)
      return false;
    if (left - head < octets)
      return true;
    if (!take_frame(socket, link, (at[0] & 0x80) != 0, at[0] & 0x0f, at + head, (size_t)octets))
      return false;
    in->first += head + (size_t)octets;
  }
}

static void read_socket(twinlink_websocket *socket, twinlink *link)
{
  struct buffer *in = &socket->in;
  memmove(in->of, in->of + in->first, in->end - in->first);
  in->end -= in->first, in->first = 0;
  ssize_t got = recv(socket->fd, in->of + in->end, in->room - in->end, 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    disconnect(socket, got == 0 ? "the listener ended the connection" : "cannot receive", got == 0 ? 0 : errno);
    return;
  }
  socket->drained = got < 0 || (size_t)got < in->room - in->end;
  if (got < 0)
    return;
  in->end += (size_t)got;
  socket->heard_ns = twinlink_mono_ns();
  if (socket->state == GREETING)
    read_reply(socket);
  if (socket->state == OPEN && !take_frames(socket, link))
    disconnect(socket, "the listener ended the WebSocket, broke RFC 6455, or sent a message that is too long", 0);
}

/* ---- Driving ---- */

static void transmit(twinlink_websocket *socket, twinlink *link)
{
  struct twinlink_frame frame;
  struct buffer *out = &socket->out;
  bool waited;
  do {
    while (socket->state == OPEN && out->room - out->end >= socket->longest_out &&
           twinlink_poll_transmit(link, &frame, twinlink_mono_ns(), twinlink_now_ns()))
      put_message(socket, &frame);
    waited = out->end > 0;
    if (socket->state == OPEN || socket->state == GREETING)
      flush(socket);
  } while (socket->state == OPEN && waited && out->end == 0); /* there is room now for what had none */
}

static void wait_readable(twinlink_websocket *socket, const twinlink *link, uint64_t wait_ns)
{
  uint64_t now = twinlink_mono_ns(), timeout = twinlink_next_timeout(link);
  uint64_t left = timeout > now ? timeout - now : 0;
  left = left < wait_ns ? left : wait_ns;
  bool writes = socket->state == CONNECTING || socket->out.end > socket->out.first;
  struct pollfd one = {socket->fd, (short)(POLLIN | (writes ? POLLOUT : 0)), 0};
  struct timespec time = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
  if (ppoll(&one, 1, &time, NULL) <= 0)
    return;
  if (socket->state == CONNECTING && (one.revents & (POLLOUT | POLLERR | POLLHUP)))
    greet(socket);
  else if (one.revents & (POLLIN | POLLERR | POLLHUP))
    socket->drained = false;
}

void twinlink_websocket_step(twinlink_websocket *socket, twinlink *link, uint64_t wait_ns)
{
  if (socket->state == CLOSED && age_ns(socket->since_ns) >= RETRY_NS)
    start_connecting(socket);
  if ((socket->state == CONNECTING || socket->state == GREETING) && age_ns(socket->since_ns) > ATTEMPT_NS)
    disconnect(socket, "no answer within a second", 0);
  if (socket->state == OPEN && age_ns(socket->heard_ns) > SILENT_NS)
    disconnect(socket, "nothing has come for 3 seconds", 0); /* five hellos were due each second; TCP repairs later */
  wait_readable(socket, link, wait_ns);
  if ((socket->state == GREETING || socket->state == OPEN) && !socket->drained)
    read_socket(socket, link);
  uint64_t now = twinlink_mono_ns();
  if (socket->drained)
    socket->drained_ns = now;
  twinlink_on_time(link, now, twinlink_now_ns(), socket->drained_ns);
  transmit(socket, link);
}

/* Reads on until the listener ends the connection: with something unread, TCP would reset it, and drop what is to leave. */
static void await_end(const twinlink_websocket *socket, uint64_t begin, uint64_t within_ns)
{
  ssize_t got;
  do {
    poll(&(struct pollfd){socket->fd, POLLIN, 0}, 1, 10);
    got = recv(socket->fd, socket->in.of, socket->in.room, 0);
  } while (age_ns(begin) < within_ns && (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))));
}

void twinlink_websocket_close(twinlink_websocket *socket, twinlink *link, uint64_t within_ns)
{
  uint64_t begin = twinlink_mono_ns();
  twinlink_close(link, begin, twinlink_now_ns());
  do
    transmit(socket, link);
  while (socket->state == OPEN && socket->out.end > socket->out.first && age_ns(begin) < within_ns &&
         poll(&(struct pollfd){socket->fd, POLLOUT, 0}, 1, 10) >= 0);
  if (socket->state == OPEN) {
    put_control(socket, CLOSE, (const uint8_t *)"\x03\xe8", 2);
    flush(socket);
    if (socket->fd >= 0 && shutdown(socket->fd, SHUT_WR) == 0)
      await_end(socket, begin, within_ns);
  }
  disconnect(socket, "this node has ended", 0);
}
