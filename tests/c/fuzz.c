/*
 * fuzz.c - mutated frames of strangers, and of peers, into a node and into the WebSocket driver's parser.
 *
 *   fuzz COUNT SEED FILE...    FILE: a frame, as docs/vectors/ has them
 *
 * To be built with address and undefined-behaviour sanitizers.  Checks what must hold in the node after every frame.
 * The sources are included so that their state can be checked.
 */
#define _GNU_SOURCE
#include "twinlink.c"
#include "twinlink_websocket.c"

#include <stdlib.h>

enum { SEEDS = 256, LONGEST = 4096, SENDERS = 5, NODE_FRAMES = 500000 };
struct seed { uint8_t octets[LONGEST]; size_t size; };

static struct seed seeds[SEEDS];
static size_t seed_count;
static uint64_t random_state, now_ns = 1000000000000000u, own_hello, checked, ups;
static const uint64_t OWN = 0xa001;

static uint64_t draw(uint64_t below)
{
  random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
  return (random_state >> 11) % below;
}

static void fail_if(bool wrong, const char *what)
{
  if (!wrong)
    return;
  fprintf(stderr, "fuzz: %s, after %llu frames\n", what, (unsigned long long)checked);
  abort();
}

static void load_seeds(char **files, int count)
{
  for (int i = 0; i < count && seed_count < SEEDS; i++) {
    FILE *file = fopen(files[i], "rb");
    fail_if(file == NULL, "a file of a frame cannot be read");
    seeds[seed_count].size = fread(seeds[seed_count].octets, 1, LONGEST, file);
    fclose(file);
    seed_count++;
  }
}

/* ---- What must hold ---- */

static void check_ranges(const struct ranges *set)
{
  fail_if(set->count > set->capacity, "more ranges than there is room for");
  for (uint32_t i = 0; i < set->count; i++) {
    fail_if(set->of[i].first >= set->of[i].end, "an empty range");
    fail_if(i > 0 && set->of[i].first <= set->of[i - 1].end, "ranges that overlap or touch");
  }
}

static uint64_t check_flow(const twinlink_flow *flow)
{
  uint64_t in_flight = 0, resent = 0;
  fail_if(flow->tail > flow->kept_tail || flow->kept_tail > flow->taken || flow->sent > flow->taken, "positions");
  fail_if(flow->taken - flow->tail > flow->messages, "more entries than there are");
  for (uint64_t at = flow->tail; at < flow->taken; at++) {
    const struct entry *entry = entry_at(flow, at);
    fail_if(at < flow->kept_tail && (entry->flags & KEPT), "a message is kept, and its room is given away");
    fail_if(((entry->flags & KEPT) != 0) != (entry->owed != 0), "a message is kept for no peer, or not for one");
    fail_if((entry->owed & ~all_peers(flow->link)) != 0, "a peer that is gone owes an ack");
    fail_if((entry->flags & IN_FLIGHT) && at >= flow->sent, "a message is in flight before it was sent");
    in_flight += entry->flags & IN_FLIGHT ? entry->octets + FRAMING_OCTETS : 0;
    resent += (entry->flags & (IN_FLIGHT | RESENT)) == (IN_FLIGHT | RESENT);
  }
  fail_if(resent != flow->resent_in_flight, "the count of retransmitted messages in flight");
  check_ranges(&flow->requested), check_ranges(&flow->abandoned[0]), check_ranges(&flow->abandoned[1]);
  for (uint32_t i = 0; i < PEERS; i++)
    check_ranges(&flow->receivers[i].doubtful), check_ranges(&flow->receivers[i].announced);
  return in_flight;
}

static void check(const twinlink *link)
{
  uint64_t in_flight = 0;
  for (uint32_t f = 0; f < link->config.flow_count; f++)
    in_flight += check_flow(link->flows + f);
  fail_if(in_flight != link->in_flight, "the octets in flight");
  uint32_t used = 0, held = 0;
  for (uint32_t i = 0; i < PEERS; i++) {
    const struct peer *peer = link->peers + i;
    fail_if(((link->up & bit(i)) != 0) != (peer->state == UP), "the set of peers that are up");
    fail_if((link->suspended & bit(i)) && !is_suspended(peer), "the set of suspended peers");
    check_ranges(&peer->stream.given_up), check_ranges(&peer->stream.conflated), check_ranges(&peer->stream.rejected);
    fail_if(peer->stream.begun && peer->stream.next < peer->stream.next_due, "the next one that is due");
    for (uint32_t k = 0; peer->state != FREE && peer->stream.begun && k < WINDOW; k++)
      held += peer->stream.held[k] >= 0;
  }
  for (uint32_t i = 0; i < link->config.receive_slots; i++)
    used += link->held[i].used;
  fail_if(used != held, "the slots of held messages");
}

/* ---- Frames ---- */

static uint64_t sender(void) { return 0xb000 + draw(SENDERS); }

static size_t put_text_hello(uint8_t *to, uint64_t epoch)
{
  int octets = snprintf((char *)to + HEADER, LONGEST - HEADER,
                        "{\"node\":\"n%llu\",\"heard\":{\"%016llx\":%llu},\"flows\":{\"control\":%llu},\"repairs\":%s%s}",
                        (unsigned long long)(draw(50) ? epoch : draw(3)), (unsigned long long)(draw(50) ? OWN : 7), (unsigned long long)own_hello,
                        (unsigned long long)draw(3), draw(50) ? "true" : "false",
                        draw(50) ? "" : ",\"detect\":[\"control\"],\"since\":{\"000000000000a001\":{\"control\":1}},\"max_payload\":900");
  put_header(to, HELLO, (uint64_t)octets, epoch, now_ns % NUMBER_PERIOD_NS + (draw(50) ? 0 : draw(2000000000)), now_ns);
  return HEADER + (size_t)octets;
}

/* A frame that a peer might send, with small numbers, so that many of them concern messages that are there. */
static size_t put_likely(uint8_t *to, const twinlink *link)
{
  static const size_t sizes[] = {0, 8, 16, 24, 40, 48, 64, 200};
  uint64_t epoch = sender(), end = link->flows[0].next_sequence, base = end > 40 ? end - 40 : 0;
  enum kind kind = (enum kind)(1 + draw(12));
  size_t body = sizes[draw(8)];
  if (kind == BYE && draw(40))
    kind = draw(2) ? ACK : NAK; /* rarer than hellos, or no peer would be up */
  if (kind == HELLO)
    return put_text_hello(to, epoch);
  for (size_t at = 0; at + 8 <= body; at += 8)
    put(to + HEADER + at, draw(3) ? base + draw(45) : draw(70), 8);
  if (kind != DATA && kind != RETRANSMIT && kind != ABANDONED && kind != BUNDLE && kind != FRAGMENT && body >= 8)
    put(to + HEADER, OWN, 8);
  if ((kind == NAK || kind == ABANDONED) && body >= 24) { /* ascending ranges */
    size_t at = kind == NAK ? 16 : 8;
    uint64_t one = kind == NAK ? base + draw(30) : draw(60);
    for (body -= (body - at) % 16; at < body; at += 8)
      put(to + HEADER + at, one += 1 + draw(4), 8);
  }
  if (kind == ABANDONED && body >= 8)
    put(to + HEADER, draw(3), 8);
  if (kind == BUNDLE && body >= HEADER)
    put_header(to + HEADER, draw(2) ? DATA : RETRANSMIT, body - HEADER, epoch, draw(70), now_ns);
  uint64_t sequence = kind == FRAGMENT ? draw(3) * body : draw(70);
  if (kind == FRAGMENT && sequence == 0 && body > HEADER)
    put_header(to + HEADER, draw(4) ? DATA : FRAGMENT, body * (1 + draw(3)), epoch, draw(70), 99);
  put_header(to, kind, body, epoch, sequence, kind == FRAGMENT ? 99 : now_ns);
  return HEADER + body;
}

static size_t mutate(uint8_t *octets, size_t size)
{
  static const uint8_t interesting[] = {0, 1, 0x7f, 0x80, 0xff, '"', '{', '}', '[', '\\', ',', 'u', '9', 0xc3, 0xf0};
  for (uint64_t i = draw(5); i > 0 && size > 0; i--) {
    size_t at = draw(size);
    switch (draw(6)) {
    case 0: octets[at] ^= (uint8_t)(1u << draw(8)); break;
    case 1: octets[at] = interesting[draw(sizeof interesting)]; break;
    case 2: octets[at] = (uint8_t)draw(256); break;
    case 3: size = draw(8) ? size : at; break;
    case 4: memmove(octets + at / 2, octets + at, size - at); break;
    default: put(octets + (at & ~(size_t)7) % (LONGEST - 8), draw(2) ? draw(100) : UINT64_MAX >> draw(64), 8); break;
    }
  }
  if (size >= HEADER && draw(4))
    put(octets + 4, size - HEADER, 4), octets[0] = 'T', octets[1] = 'L', octets[2] = 1;
  return size;
}

/* At the end of memory of its own, so that a read beyond it is found. */
static void give(twinlink *link, const uint8_t *octets, size_t size)
{
  static const char *const topics[] = {"traffic/f", "ack/f", "traffic/control", "ack/g", "traffic/_link", "ack/", "traffic/x"};
  static const char *const of_kind[] = {"", "traffic/control", "ack/f", "traffic/_link", "traffic/_link", "traffic/control",
                                        "ack/f", "traffic/control", "traffic/control", "traffic/control", "ack/f", "ack/f", "ack/f"};
  bool fits = size >= 4 && octets[3] <= REFUSED && draw(8) > 0;
  const char *topic = fits ? of_kind[octets[3]] : topics[draw(7)];
  uint8_t *copy = malloc(size > 0 ? size : 1);
  memcpy(copy, octets, size);
  twinlink_receive(link, topic, strlen(topic), copy, size, now_ns, now_ns);
  free(copy);
}

static void drive(twinlink *link)
{
  struct twinlink_frame frame;
  if (draw(3) == 0)
    twinlink_send(twinlink_flow_at(link, (uint32_t)draw(2)), seeds[0].octets, draw(1200), now_ns);
  now_ns += draw(2000) == 0 ? draw(8000000000) : draw(8000000);
  twinlink_on_time(link, now_ns, now_ns, draw(9) ? now_ns : now_ns - 1000000);
  for (int i = 0; i < 4 && twinlink_poll_transmit(link, &frame, now_ns, now_ns); i++) {
    const uint8_t *octets = frame.octets;
    fail_if(malformed_header(octets, frame.size) >= 0, "a malformed frame is sent");
    if (octets[3] == HELLO)
      own_hello = get(octets + 16, 8);
  }
  ups += link->up != 0;
}

/* ---- The parser of the WebSocket driver ---- */

static void parse_stream(twinlink_websocket *socket, twinlink *link, const uint8_t *octets, size_t size)
{
  struct buffer *in = &socket->in;
  size_t at = 0;
  in->first = in->end = 0;
  static const uint8_t first[] = {0x82, 0x02, 0x80, 0x00, 0x89, 0x8a, 0x81, 0x88};
  in->of[in->end++] = draw(4) ? first[draw(8)] : (uint8_t)draw(256);
  if (size < 126 && draw(4)) {
    in->of[in->end++] = (uint8_t)size;
  } else if (draw(4)) {
    in->of[in->end++] = 126, in->of[in->end++] = (uint8_t)(size >> 8), in->of[in->end++] = (uint8_t)size;
  } else {
    in->of[in->end++] = 127;
    put(in->of + in->end, draw(2) ? size : UINT64_MAX >> draw(64), 8), in->end += 8;
  }
  for (; at < size && in->end < in->room; at++)
    in->of[in->end++] = octets[at];
  if (!take_frames(socket, link))
    socket->in_message = false, socket->message.end = 0;
  fail_if(in->first > in->end || socket->message.end > socket->message.room, "the buffers of the socket");
  socket->out.first = socket->out.end = 0;
}

int main(int count, char **arguments)
{
  fail_if(count < 4, "usage: fuzz COUNT SEED FILE...");
  uint64_t frames = strtoull(arguments[1], NULL, 10);
  random_state = strtoull(arguments[2], NULL, 10) * 2654435761u + 88172645463325252u;
  load_seeds(arguments + 3, count - 3);
  struct twinlink_flow_config flows[] = {
      {.name = "f", .ring_octets = 16384, .messages = 64, .reserve_octets = 2048, .window_octets = 300000},
      {.name = "g", .ring_octets = 4096, .messages = 16}};
  struct twinlink_config config = {.abi = TWINLINK_ABI, .octets = sizeof config, .node = "node", .epoch = OWN, .flows = flows,
                                   .flow_count = 2, .in_flight_octets = 5000, .receive_flow = "control",
                                   .receive_max_octets = 300, .receive_slots = 4, .send_max_octets = 2000};
  struct twinlink_websocket_config reached = {.host = "127.0.0.1", .port = 1, .node = &config};
  size_t octets = twinlink_memory_octets(&config), socket_octets = twinlink_websocket_memory_octets(&reached);
  twinlink *link = NULL;
  fail_if(twinlink_init(&link, aligned_alloc(64, octets), octets, &config, now_ns) != 0, "no node");
  void *memory = aligned_alloc(64, socket_octets);
  twinlink_websocket *socket = twinlink_websocket_init(memory, socket_octets, &reached);
  for (; checked < frames; checked++) {
    static uint8_t frame[LONGEST];
    if (checked % NODE_FRAMES == 0) /* a new node: those that were up and are suspended take up the room of others */
      fail_if(twinlink_init(&link, link, octets, &config, now_ns) != 0, "no new node");
    size_t size;
    if (draw(3) == 0) {
      const struct seed *one = seeds + draw(seed_count);
      size = one->size;
      memcpy(frame, one->octets, size);
      bool parts = size >= 16 && (frame[3] == HELLO || frame[3] == BYE); /* such a hello does not list this node */
      if (size >= 16 && draw(2) && (!parts || draw(100) == 0))
        put(frame + 8, sender(), 8);
    } else {
      size = put_likely(frame, link);
    }
    if (draw(3) == 0)
      size = mutate(frame, size);
    if (draw(16) == 0)
      parse_stream(socket, link, frame, size);
    else
      give(link, frame, size);
    if (draw(4) == 0)
      drive(link);
    if (draw(16) == 0)
      check(link);
  }
  struct twinlink_stats all;
  struct twinlink_flow_stats one;
  twinlink_get_stats(link, &all), twinlink_get_flow_stats(link->flows, &one);
  printf("{\"frames\": %llu, \"malformed\": %llu, \"sent\": %llu, \"acknowledged\": %llu, \"lost\": %llu, \"retransmitted\": %llu, "
         "\"received\": %llu, \"gaps\": %llu, \"steps_with_a_peer\": %llu}\n",
         (unsigned long long)checked, (unsigned long long)all.malformed, (unsigned long long)one.sent,
         (unsigned long long)one.acknowledged, (unsigned long long)one.lost, (unsigned long long)one.retransmitted,
         (unsigned long long)all.received, (unsigned long long)all.gaps, (unsigned long long)ups);
  free(link), free(memory);
  return 0;
}
