/*
 * over_zeromq.c - sends messages over ZeroMQ, a thousand a second: over_zeromq HOST PORT COUNT
 *
 * Prints an event a line, and at the end what was counted, as the example does.
 */
#define _GNU_SOURCE
#include "twinlink_zeromq.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { OCTETS = 20000, STEPS_A_MESSAGE = 5, MOST_STEPS = 100000 };

static uint64_t clock_ns(clockid_t clock)
{
  struct timespec time;
  clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void print_event(void *context, const struct twinlink_event *event)
{
  static const char *const names[] = {"", "peer_up", "peer_down", "restarted", "lost", "gap", "malformed"};
  (void)context;
  printf("{\"event\": \"%s\", \"first\": %llu, \"end\": %llu}\n", names[event->kind], (unsigned long long)event->first,
         (unsigned long long)event->end);
  fflush(stdout);
}

int main(int count, char **arguments)
{
  uint64_t epoch = 0;
  if (count != 4 || getrandom(&epoch, sizeof epoch, 0) != sizeof epoch)
    return 2;
  int messages = atoi(arguments[3]);
  struct twinlink_flow_config flow = {.name = "spectrum", .ring_octets = 32 << 20, .messages = 4096, .reserve_octets = 1 << 20};
  struct twinlink_config config = {.abi = TWINLINK_ABI, .octets = sizeof config, .node = "gnb", .epoch = epoch, .flows = &flow,
                                   .flow_count = 1, .receive_flow = "control", .receive_slots = 8, .on_event = print_event};
  twinlink *link = NULL;
  struct twinlink_zeromq socket;
  size_t octets = twinlink_memory_octets(&config);
  if (twinlink_init(&link, aligned_alloc(64, octets), octets, &config, clock_ns(CLOCK_MONOTONIC)) != TWINLINK_OK ||
      !twinlink_zeromq_init(&socket, arguments[1], (uint16_t)atoi(arguments[2]), 65536))
    return 2;
  struct twinlink_stats all = {0};
  struct twinlink_flow_stats one = {0};
  twinlink_flow *to = twinlink_flow_at(link, 0);
  uint8_t *payload = malloc(OCTETS);
  memset(payload, 1, OCTETS);
  for (int steps = 0; all.peers_up == 0 && steps < MOST_STEPS; steps++)
    twinlink_zeromq_step(&socket, link, 1000000), twinlink_get_stats(link, &all);
  for (int i = 0; i < messages; i++) {
    twinlink_send(to, payload, OCTETS, clock_ns(CLOCK_REALTIME));
    for (int k = 0; k < STEPS_A_MESSAGE; k++)
      twinlink_zeromq_step(&socket, link, 1000000 / STEPS_A_MESSAGE);
  }
  for (int steps = 0; (steps == 0 || one.outstanding > 0) && steps < MOST_STEPS; steps++)
    twinlink_zeromq_step(&socket, link, 1000000), twinlink_get_flow_stats(to, &one);
  twinlink_zeromq_close(&socket, link, 1000000000u);
  twinlink_get_flow_stats(to, &one), twinlink_get_stats(link, &all);
  printf("{\"offered\": %d, \"sent\": %llu, \"acknowledged\": %llu, \"lost\": %llu, \"outstanding\": %llu, \"decisions\": %llu}\n",
         messages, (unsigned long long)one.sent, (unsigned long long)one.acknowledged, (unsigned long long)one.lost,
         (unsigned long long)one.outstanding, (unsigned long long)all.received);
  return 0;
}
