/*
 * slot_call.c - how long a slot thread takes to hand over a slot, with twinlink and without.
 *
 *   slot_call HOST PORT SECONDS CPU
 *
 * 4000 times a second, pinned to a processor, it copies a slot of 71,320 octets: in turns into a flow of twinlink, and into
 * a ring of its own, which nothing reads.  A third of those of twinlink are written in place (twinlink_reserve and
 * twinlink_commit around the copy).  Prints the distributions in ns.
 */
#define _GNU_SOURCE
#include "twinlink_websocket.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { SLOT = 71320, RING = 64 << 20, MOST = 400000, WITHOUT = 0, SENT = 1, CALLS = 2, KINDS = 3 };
static const uint64_t PERIOD_NS = 250000;
static atomic_bool ending;
static uint32_t times[KINDS][MOST];
static size_t counts[KINDS];

struct task { twinlink_flow *flow; uint8_t *ring; int cpu; };

static void note(int kind, uint64_t ns)
{
  if (counts[kind] < MOST)
    times[kind][counts[kind]++] = (uint32_t)ns;
}

static void copy_plainly(const struct task *task, const uint8_t *slot, uint64_t *at)
{
  uint64_t begin = twinlink_mono_ns();
  memcpy(task->ring + *at, slot, SLOT);
  *at = *at + 2 * SLOT > RING ? 0 : *at + SLOT;
  note(WITHOUT, twinlink_mono_ns() - begin);
}

static void send_slot(const struct task *task, const uint8_t *slot)
{
  uint64_t begin = twinlink_mono_ns();
  twinlink_send(task->flow, slot, SLOT, begin);
  note(SENT, twinlink_mono_ns() - begin);
}

/* What the two calls take beside the copy, which is made between them and not timed. */
static void write_slot(const struct task *task, const uint8_t *slot)
{
  uint64_t begin = twinlink_mono_ns();
  void *place = twinlink_reserve(task->flow, SLOT);
  uint64_t reserved = twinlink_mono_ns();
  if (place == NULL)
    return;
  memcpy(place, slot, SLOT);
  uint64_t copied = twinlink_mono_ns();
  twinlink_commit(task->flow, SLOT, copied);
  note(CALLS, twinlink_mono_ns() - copied + reserved - begin);
}

static void *run(void *argument)
{
  const struct task *task = argument;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET((size_t)task->cpu, &cpus);
  pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus);
  uint8_t *slot = malloc(SLOT);
  uint64_t due = twinlink_mono_ns(), at = 0;
  for (uint64_t number = 0; !atomic_load(&ending); number++) {
    due += PERIOD_NS;
    struct timespec until = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    memset(slot, (int)(number & 0xff), SLOT); /* as a gNB, which has just written it */
    if (number % 2 == 0)
      copy_plainly(task, slot, &at);
    else if (number % 6 == 1)
      write_slot(task, slot);
    else
      send_slot(task, slot);
  }
  free(slot);
  return NULL;
}

static int compare(const void *a, const void *b)
{
  uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
  return (left > right) - (left < right);
}

static void print(const char *name, int kind, const char *end)
{
  size_t n = counts[kind];
  qsort(times[kind], n, sizeof times[kind][0], compare);
  printf("\"%s\": {\"n\": %zu, \"p50_ns\": %u, \"p99_ns\": %u}%s", name, n, n ? times[kind][n / 2] : 0,
         n ? times[kind][n * 99 / 100] : 0, end);
}

int main(int count, char **arguments)
{
  if (count != 5)
    return 2;
  uint64_t epoch = 0;
  if (getrandom(&epoch, sizeof epoch, 0) != sizeof epoch)
    return 2;
  struct twinlink_flow_config flow = {.name = "spectrum", .ring_octets = RING, .messages = 1024, .reserve_octets = 8 << 20};
  struct twinlink_config config = {.abi = TWINLINK_ABI, .octets = sizeof config, .node = "gnb", .epoch = epoch, .flows = &flow,
                                   .flow_count = 1, .send_max_octets = SLOT};
  struct twinlink_websocket_config reached = {.host = arguments[1], .port = (uint16_t)atoi(arguments[2]), .node = &config};
  twinlink *link = NULL;
  size_t octets = twinlink_memory_octets(&config), socket_octets = twinlink_websocket_memory_octets(&reached);
  if (twinlink_init(&link, aligned_alloc(64, octets), octets, &config, twinlink_mono_ns()) != TWINLINK_OK)
    return 2;
  twinlink_websocket *socket = twinlink_websocket_init(aligned_alloc(64, socket_octets), socket_octets, &reached);
  struct task task = {twinlink_flow_at(link, 0), aligned_alloc(64, RING), atoi(arguments[4])};
  memset(task.ring, 0, RING); /* its pages are there, as those of twinlink's memory */
  struct twinlink_stats stats = {0};
  pthread_t thread;
  while (stats.peers_up == 0)
    twinlink_websocket_step(socket, link, 2000000), twinlink_get_stats(link, &stats);
  uint64_t begin = twinlink_mono_ns();
  pthread_create(&thread, NULL, run, &task);
  while (twinlink_mono_ns() - begin < (uint64_t)(atof(arguments[3]) * 1e9))
    twinlink_websocket_step(socket, link, 200000);
  atomic_store(&ending, true);
  pthread_join(thread, NULL);
  struct twinlink_flow_stats one;
  twinlink_get_flow_stats(task.flow, &one);
  printf("{");
  print("copy_alone", WITHOUT, ", "), print("twinlink_send", SENT, ", "), print("reserve_and_commit", CALLS, ", ");
  printf("\"sent\": %llu, \"acknowledged\": %llu, \"dropped\": %llu}\n", (unsigned long long)one.sent,
         (unsigned long long)one.acknowledged, (unsigned long long)one.dropped);
  twinlink_websocket_close(socket, link, 1000000000u);
  return 0;
}
