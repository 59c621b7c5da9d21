/*
 * example.c - a gNB's side of a twin: a thread hands over emulated slots, another one drives the link.
 *
 *   twinlink-slots HOST PORT [SECONDS [SLOTS_A_SECOND]]
 *
 * Connects to a WebSocket listener, for instance of Python: twinlink.open("websocket", listen="127.0.0.1:7447").
 * A message of flow "spectrum" is one slot of 106 PRBs with all symbols, as `twinlink.slots` reads it: 71,320 octets.
 * Decisions on flow "control" are counted.  Prints an event of the link a line, and what was counted at the end.
 */
#define _GNU_SOURCE
#include "twinlink_websocket.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { PRBS = 106, SYMBOLS = 14, HEAD = 48, SLOT_HEAD = 40, DATA = SYMBOLS * PRBS * 12 * 2 * 2, SLOT = HEAD + SLOT_HEAD + DATA };
static const uint64_t LINK_WAIT_NS = 200000; /* what the slot thread hands over waits at most so long */
static atomic_bool ending;

struct slots { twinlink_flow *flow; uint64_t period_ns; _Atomic uint64_t offered; };

static void put(uint8_t *to, uint64_t value, int octets)
{
  for (int i = octets - 1; i >= 0; i--, value >>= 8)
    to[i] = (uint8_t)value;
}

/* The heads of one slot; a gNB fills the rest from its receive buffer, in place. */
static void put_slot(uint8_t *to, uint64_t number, uint64_t now_ns)
{
  static const uint8_t beta_one[4] = {0x3f, 0x80, 0, 0}, carrier[8] = {0x41, 0xea, 0xdc, 0x8c, 0x20, 0, 0, 0};
  memset(to, 0, HEAD + SLOT_HEAD);
  to[2] = 2, to[5] = 1; /* version 2, one slot of I/Q */
  put(to + 6, 1, 2), put(to + 8, PRBS, 2), put(to + 12, PRBS, 2), put(to + 14, 1, 2), put(to + 16, 30000, 4);
  memcpy(to + 20, beta_one, 4), memcpy(to + 24, carrier, 8);
  uint8_t *slot = to + HEAD;
  put(slot, now_ns, 8), put(slot + 8, twinlink_mono_ns(), 8), put(slot + 16, number / 20 % 1024, 2);
  put(slot + 18, number % 20, 2), put(slot + 20, (1u << SYMBOLS) - 1, 2);
  slot[22] = 1, slot[23] = 1; /* monotonic clock, int16 */
  put(slot + 28, DATA, 4);
}

static void *run_slots(void *argument)
{
  struct slots *slots = argument;
  uint64_t due = twinlink_mono_ns();
  for (uint64_t number = 0; !atomic_load(&ending); number++) {
    due += slots->period_ns;
    struct timespec until = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    uint64_t now = twinlink_now_ns();
    uint8_t *place = twinlink_reserve(slots->flow, SLOT);
    if (place != NULL) { /* else the link counts it, and announces that it will not come */
      put_slot(place, number, now);
      memset(place + HEAD + SLOT_HEAD, (int)(number & 0x7f), DATA);
      twinlink_commit(slots->flow, SLOT, now);
    }
    atomic_store(&slots->offered, number + 1);
  }
  return NULL;
}

static void print_event(void *context, const struct twinlink_event *event)
{
  static const char *const names[] = {"", "peer_up", "peer_down", "restarted", "lost", "gap", "malformed"};
  (void)context;
  printf("{\"event\": \"%s\", \"node\": \"", names[event->kind]);
  for (const char *c = event->node; *c != 0; c++) /* the peer has chosen it; control characters are none of it */
    printf(*c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
  printf("\", \"flow\": \"%s\", \"first\": %" PRIu64 ", \"end\": %" PRIu64 ", \"reason\": \"%s\"}\n", event->flow,
         event->first, event->end, event->reason);
}

static void print_stats(const twinlink *link, const twinlink_flow *flow, uint64_t offered)
{
  struct twinlink_stats all;
  struct twinlink_flow_stats one;
  twinlink_get_stats(link, &all);
  twinlink_get_flow_stats(flow, &one);
  printf("{\"offered\": %" PRIu64 ", \"sent\": %" PRIu64 ", \"acknowledged\": %" PRIu64 ", \"lost\": %" PRIu64
         ", \"dropped\": %" PRIu64 ", \"retransmitted\": %" PRIu64 ", \"outstanding\": %" PRIu64 ", \"decisions\": %" PRIu64
         ", \"rtt_us\": %" PRIu64 "}\n",
         offered, one.sent, one.acknowledged, one.lost, one.dropped, one.retransmitted, one.outstanding, all.received,
         all.rtt_ns / 1000);
}

static void end(int signal_number)
{
  (void)signal_number;
  atomic_store(&ending, true);
}

static void fail(const char *what)
{
  fprintf(stderr, "twinlink-slots: %s\n", what);
  exit(2);
}

static void *memory_of(size_t octets)
{
  void *memory = octets > 0 ? aligned_alloc(64, (octets + 63) & ~(size_t)63) : NULL;
  if (memory == NULL)
    fail("no memory, or a configuration that is wrong: compare it with twinlink.h");
  return memory;
}

/* Says on stderr why there is no connection, each reason once. */
static void say_problem(const twinlink_websocket *socket, const char *host, const char *port)
{
  static char said[160];
  const char *problem = twinlink_websocket_problem(socket);
  if (problem == NULL || strcmp(problem, said) == 0)
    return;
  snprintf(said, sizeof said, "%s", problem);
  fprintf(stderr, "twinlink-slots: %s port %s: %s; it goes on trying\n", host, port, said);
}

/* Steps until nothing is outstanding, or so long. */
static void finish(twinlink_websocket *socket, twinlink *link, const twinlink_flow *flow, uint64_t within_ns)
{
  struct twinlink_flow_stats stats;
  for (uint64_t begin = twinlink_mono_ns(); twinlink_mono_ns() - begin < within_ns;) {
    twinlink_websocket_step(socket, link, 10 * LINK_WAIT_NS);
    twinlink_get_flow_stats(flow, &stats);
    if (stats.outstanding == 0)
      return;
  }
}

int main(int count, char **arguments)
{
  if (count < 3)
    fail("usage: twinlink-slots HOST PORT [SECONDS [SLOTS_A_SECOND]]");
  double seconds = count > 3 ? atof(arguments[3]) : 10, pace = count > 4 ? atof(arguments[4]) : 2000;
  uint64_t epoch = 0;
  if (getrandom(&epoch, sizeof epoch, 0) != sizeof epoch)
    fail("no random number for the session's epoch");
  struct twinlink_flow_config flows[] = {
      {.name = "spectrum", .ring_octets = 64 << 20, .messages = 1024, .reserve_octets = 8 << 20}};
  struct twinlink_config config = {
      .abi = TWINLINK_ABI, .octets = sizeof config, .node = "gnb", .epoch = epoch, .flows = flows, .flow_count = 1,
      .send_max_octets = SLOT, .receive_flow = "control", .receive_slots = 32, .on_event = print_event};
  struct twinlink_websocket_config reached = {.host = arguments[1], .port = (uint16_t)atoi(arguments[2]), .node = &config};
  twinlink *link;
  size_t octets = twinlink_memory_octets(&config);
  int error = twinlink_init(&link, memory_of(octets), octets, &config, twinlink_mono_ns());
  if (error != TWINLINK_OK)
    fail(twinlink_error_text(error));
  octets = twinlink_websocket_memory_octets(&reached);
  twinlink_websocket *socket = twinlink_websocket_init(memory_of(octets), octets, &reached);
  if (socket == NULL)
    fail("HOST is no IPv4 or IPv6 address");
  signal(SIGTERM, end), signal(SIGINT, end);
  setvbuf(stdout, NULL, _IOLBF, 0);

  struct slots slots = {.flow = twinlink_flow_at(link, 0), .period_ns = (uint64_t)(1e9 / pace)};
  pthread_t thread;
  struct twinlink_stats stats = {0};
  while (stats.peers_up == 0 && !atomic_load(&ending)) { /* without a peer, slots would count as lost */
    twinlink_websocket_step(socket, link, 10 * LINK_WAIT_NS);
    say_problem(socket, arguments[1], arguments[2]);
    twinlink_get_stats(link, &stats);
  }
  if (pthread_create(&thread, NULL, run_slots, &slots) != 0)
    fail("no thread for the slots");
  uint64_t begin = twinlink_mono_ns();
  while (!atomic_load(&ending) && twinlink_mono_ns() - begin < (uint64_t)(seconds * 1e9))
    twinlink_websocket_step(socket, link, LINK_WAIT_NS);
  atomic_store(&ending, true);
  pthread_join(thread, NULL);
  finish(socket, link, slots.flow, 5000000000u);
  twinlink_websocket_close(socket, link, 1000000000u);
  print_stats(link, slots.flow, atomic_load(&slots.offered));
  return 0;
}
