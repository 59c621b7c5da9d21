/*
 * round_trip.c - from C to Python and back: a message with its ack through twinlink, or the same octets over the bare
 * socket with the same framing, answered by as many octets as an ack has.  A message counts
 * from when it stands where it is sent from: in the ring (twinlink_reserve, twinlink_commit), or in a buffer.
 *
 *   round_trip twinlink|bare HOST PORT COUNT OCTETS
 *
 * Prints the distribution in ns.
 */
#include "twinlink_websocket.c"

#include <stdlib.h>
#include <sys/random.h>

enum { MOST = 100000, WARM = 200 };
static uint64_t times[MOST];

static int compare(const void *a, const void *b)
{
  uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
  return (left > right) - (left < right);
}

static void print(int count)
{
  qsort(times, (size_t)count, sizeof times[0], compare);
  printf("{\"n\": %d, \"p50_ns\": %llu, \"p99_ns\": %llu}\n", count, (unsigned long long)times[count / 2],
         (unsigned long long)times[count * 99 / 100]);
}

static void wait_for_answer(twinlink_websocket *at)
{
  size_t got = 0;
  while (got < 2 || got < 2 + (size_t)(at->in.of[1] & 0x7f)) {
    poll(&(struct pollfd){at->fd, POLLIN, 0}, 1, 1000);
    ssize_t octets = recv(at->fd, at->in.of + got, at->in.room - got, 0);
    if (octets == 0 || (octets < 0 && errno != EAGAIN))
      exit(1);
    got += octets > 0 ? (size_t)octets : 0;
  }
}

static void run_bare(twinlink_websocket *at, uint8_t *payload, size_t size, int count)
{
  struct twinlink_frame frame = {"traffic/spectrum", 16, payload, size};
  int one = 1;
  at->fd = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(at->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(at->fd, (struct sockaddr *)&at->address, at->address_octets) < 0)
    exit(1);
  fcntl(at->fd, F_SETFL, O_NONBLOCK);
  for (int i = -WARM; i < count; i++) {
    memset(payload, i & 0x7f, size);
    uint64_t begin = twinlink_mono_ns();
    put_message(at, &frame);
    for (flush(at); at->out.end > 0; flush(at))
      poll(&(struct pollfd){at->fd, POLLOUT, 0}, 1, 1000);
    wait_for_answer(at);
    if (i >= 0)
      times[i] = twinlink_mono_ns() - begin;
  }
}

static void run_twinlink(twinlink_websocket *at, uint64_t epoch, size_t size, int count)
{
  struct twinlink_flow_config flow = {.name = "spectrum", .ring_octets = 1 << 22, .messages = 1024, .reserve_octets = 1 << 19};
  struct twinlink_config config = {.abi = TWINLINK_ABI, .octets = sizeof config, .node = "gnb", .epoch = epoch, .flows = &flow,
                                   .flow_count = 1};
  twinlink *link = NULL;
  size_t octets = twinlink_memory_octets(&config);
  if (twinlink_init(&link, aligned_alloc(64, octets), octets, &config, twinlink_mono_ns()) != TWINLINK_OK)
    exit(1);
  struct twinlink_stats stats = {0};
  struct twinlink_flow_stats sent;
  while (stats.peers_up == 0)
    twinlink_websocket_step(at, link, 2000000), twinlink_get_stats(link, &stats);
  for (int i = -WARM; i < count; i++) {
    void *place = twinlink_reserve(twinlink_flow_at(link, 0), size);
    if (place == NULL)
      exit(1);
    memset(place, i & 0x7f, size);
    uint64_t begin = twinlink_mono_ns();
    twinlink_commit(twinlink_flow_at(link, 0), size, twinlink_now_ns());
    twinlink_websocket_step(at, link, 0);
    do
      twinlink_websocket_step(at, link, 100000000), twinlink_get_flow_stats(twinlink_flow_at(link, 0), &sent);
    while (sent.outstanding > 0);
    if (i >= 0)
      times[i] = twinlink_mono_ns() - begin;
  }
  twinlink_websocket_close(at, link, 1000000000u);
}

int main(int count, char **arguments)
{
  uint64_t epoch = 0;
  if (count != 6 || getrandom(&epoch, sizeof epoch, 0) != sizeof epoch)
    return 2;
  int messages = atoi(arguments[4]);
  size_t size = (size_t)atoi(arguments[5]);
  struct twinlink_config node = {.epoch = epoch, .send_max_octets = (uint32_t)size};
  struct twinlink_websocket_config reached = {.host = arguments[2], .port = (uint16_t)atoi(arguments[3]), .node = &node};
  size_t octets = twinlink_websocket_memory_octets(&reached);
  twinlink_websocket *at = twinlink_websocket_init(aligned_alloc(64, octets), octets, &reached);
  uint8_t *payload = calloc(1, size + TWINLINK_HEADER_OCTETS);
  if (messages > MOST || at == NULL)
    return 2;
  if (strcmp(arguments[1], "bare") == 0)
    run_bare(at, payload, size + TWINLINK_HEADER_OCTETS, messages);
  else
    run_twinlink(at, epoch, size, messages);
  print(messages);
  return 0;
}
