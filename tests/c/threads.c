/*
 * threads.c - a slot thread sends as fast as it can, and one thread drives two nodes that are joined in memory.
 *
 *   threads MESSAGES          prints how many arrived or are named as lost; to be built with the thread sanitizer
 *   threads MESSAGES alone    one thread, a message at a time: what both nodes take for it and its ack
 */
#define _GNU_SOURCE
#include "twinlink.c"
#include "twinlink_websocket.c"

#include <pthread.h>
#include <stdlib.h>

static uint64_t arrived, lost, wrong, last = UINT64_MAX, messages;
static _Atomic bool sent_all;

static void on_message_here(void *context, const struct twinlink_message *message)
{
  uint64_t first;
  (void)context;
  memcpy(&first, message->payload, 8);
  wrong += first != message->sequence || (last != UINT64_MAX && message->sequence <= last);
  for (size_t i = 8; i < message->octets; i++)
    wrong += ((const uint8_t *)message->payload)[i] != (uint8_t)first;
  last = message->sequence;
  arrived++;
}

static void on_event_here(void *context, const struct twinlink_event *event)
{
  (void)context;
  lost += event->kind == TWINLINK_LOST ? event->end - event->first : 0;
}

static void *run_sender(void *flow)
{
  for (uint64_t i = 0; i < messages; i++) {
    size_t octets = 8 + (size_t)(i * 7919 % 1500);
    uint8_t *place = twinlink_reserve(flow, 2000);
    if (place != NULL) {
      memset(place + 8, (int)(i & 0xff), octets - 8);
      memcpy(place, &i, 8);
      twinlink_commit(flow, octets, 1);
    }
    if (i % 64 == 0)
      sched_yield();
  }
  atomic_store(&sent_all, true);
  return NULL;
}

static void carry(twinlink *from, twinlink *to)
{
  struct twinlink_frame frame;
  uint64_t now = twinlink_mono_ns();
  for (int i = 0; i < 64 && twinlink_poll_transmit(from, &frame, now, now); i++)
    twinlink_receive(to, frame.topic, frame.topic_octets, frame.octets, frame.size, now, now);
}

static twinlink *make(const char *node, uint64_t epoch, bool receives)
{
  static struct twinlink_flow_config flow = {.name = "f", .ring_octets = 65536, .messages = 64, .reserve_octets = 4096};
  struct twinlink_config config = {.abi = TWINLINK_ABI, .octets = sizeof config, .node = node, .epoch = epoch, .flows = &flow,
                                   .flow_count = !receives, .receive_flow = receives ? "f" : NULL, .receive_slots = 8,
                                   .on_event = on_event_here, .on_message = on_message_here};
  size_t octets = twinlink_memory_octets(&config);
  twinlink *link = NULL;
  if (twinlink_init(&link, aligned_alloc(64, octets), octets, &config, twinlink_mono_ns()) != TWINLINK_OK)
    abort();
  return link;
}

static void step(twinlink *sender, twinlink *receiver)
{
  uint64_t now = twinlink_mono_ns();
  twinlink_on_time(sender, now, now, now), twinlink_on_time(receiver, now, now, now);
  carry(sender, receiver), carry(receiver, sender);
}

static void run_alone(twinlink *sender, twinlink *receiver)
{
  static uint8_t payload[1000];
  while (!sender->up || !receiver->up)
    step(sender, receiver);
  uint64_t begin = twinlink_mono_ns();
  for (uint64_t i = 0; i < messages; i++) {
    memset(payload, (int)(i & 0xff), sizeof payload);
    memcpy(payload, &i, 8);
    twinlink_send(twinlink_flow_at(sender, 0), payload, sizeof payload, begin);
    step(sender, receiver);
  }
  printf("{\"arrived\": %llu, \"wrong\": %llu, \"ns\": %llu}\n", (unsigned long long)arrived, (unsigned long long)wrong,
         (unsigned long long)((twinlink_mono_ns() - begin) / messages));
}

int main(int count, char **arguments)
{
  messages = count > 1 ? strtoull(arguments[1], NULL, 10) : 100000;
  twinlink *sender = make("sender", 1, false), *receiver = make("receiver", 2, true);
  if (count > 2 && strcmp(arguments[2], "alone") == 0) {
    run_alone(sender, receiver);
    return 0;
  }
  pthread_t thread;
  struct twinlink_flow_stats stats = {0};
  bool begun = false;
  while (!begun || !atomic_load(&sent_all) || arrived + lost < messages) {
    step(sender, receiver);
    if (!begun && sender->up)
      begun = pthread_create(&thread, NULL, run_sender, twinlink_flow_at(sender, 0)) == 0;
  }
  pthread_join(thread, NULL);
  twinlink_get_flow_stats(twinlink_flow_at(sender, 0), &stats);
  printf("{\"offered\": %llu, \"arrived\": %llu, \"lost\": %llu, \"wrong\": %llu}\n", (unsigned long long)stats.sent,
         (unsigned long long)arrived, (unsigned long long)lost, (unsigned long long)wrong);
  free(sender), free(receiver);
  return wrong != 0;
}
