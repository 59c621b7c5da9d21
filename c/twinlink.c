/*
 * twinlink.c - see twinlink.h.  Sections of docs/protocol.md are cited by their titles.
 *
 * In this order: octets, ranges; the ring of a flow; frames; hellos (JSON); losses and messages that are kept; peers;
 * what is sent; what is received; the calls of the link thread.
 */
#include "twinlink.h"

#include <stdatomic.h>
#include <string.h>

enum kind {
  DATA = 1, ACK, HELLO, BYE, RETRANSMIT, NAK, ABANDONED, BUNDLE, FRAGMENT, FRAGMENT_PROGRESS, ACK_RANGE, REFUSED
};
enum abandon_reason { EVICTED, DROPPED, CONFLATED };
enum peer_state { FREE, HEARD, UP, DEAF, SILENT, LOST, REPLACED };
enum malformed { M_TRUNCATED, M_MAGIC, M_VERSION, M_KIND, M_LENGTH, M_TOPIC, M_SEQUENCE, M_ACK, M_ACK_RANGE, M_NAK,
                 M_ABANDONED, M_FRAGMENT_PROGRESS, M_FRAGMENT, M_BUNDLE, M_HELLO, M_REFUSED, M_REFLECTED, M_KINDS };
enum { KEPT = 1, IN_FLIGHT = 2, RESENT = 4 }; /* flags of an entry */

static const char *const MALFORMED_NAMES[M_KINDS] = {
    "truncated", "magic", "version", "kind", "length", "topic", "sequence", "ack", "ack_range", "nak", "abandoned",
    "fragment_progress", "fragment", "bundle", "hello", "refused", "reflected"};
static const char *const REASON_EVICTED = "it was not acknowledged in time and had to make room for newer messages";
static const char *const REASON_DROPPED = "the flow was full, or the message longer than send_max_octets";
static const char *const REASON_NO_PEER = "no peer was up";
static const char *const REASON_TOO_LONG = "it is longer than the peer's max_payload";
static const char *const REASON_NOT_TAKEN = "the peer's application takes nothing on this flow, or nothing so long";
static const char *const REASON_NOT_ACKED = "it was not acknowledged within four seconds, and the peer does not repair";
static const char *const REASON_SKIPPED = "the peer went past it without acknowledging it";
static const char *const REASON_ENDED = "the peer's session ended before it was acknowledged";
static const char *const REASON_CLOSED = "this session ended before it was acknowledged";

/* Peers: the timers of "Limits and timers". */
static const uint64_t HELLO_INTERVAL_NS = 200000000, SEARCH_INTERVAL_NS = 50000000, TICK_NS = 50000000;
static const uint64_t FLOW_TICK_NS = 200000000, ANSWER_INTERVAL_NS = 20000000;
static const uint64_t SUSPECT_NS = 300000000, NO_NEWS_NS = 600000000, BEHIND_NS = 300000000, RESTART_NS = 400000000;
static const uint64_t TIMEOUT_NS = 1300000000, HARD_TIMEOUT_NS = 6000000000, SUSPENDED_NS = 120000000000;
static const uint64_t REVIVAL_NS = 3000000000, PAUSE_NS = 600000000, SECOND_NS = 1000000000;
static const uint64_t NUMBER_PERIOD_NS = (uint64_t)1 << 50; /* numbers of hellos stay exact as doubles of JSON */
static const uint64_t MAX_SEQUENCE = INT64_MAX;
static const uint64_t FRAMING_OCTETS = 96;        /* what a message counts for in flight beside its payload */
static const uint64_t UNBLOCKED_OCTETS = 262144;  /* unconsumed octets that no window forbids */
static const uint64_t UNANSWERED_OCTETS = 1048576; /* retransmitted before anything is acknowledged, in 200 ms */

enum {
  HEADER = TWINLINK_HEADER_OCTETS, PEERS = TWINLINK_MAX_PEERS, FLOWS = TWINLINK_MAX_FLOWS,
  MAX_RANGES = 256,   /* of a nak or an abandoned frame */
  PEER_RANGES = 64,   /* kept of each peer and flow */
  MAX_HELLO = 262144, MAX_RECORDS = 256, MAX_ACK_RANGE = 4096, MAX_BUNDLED = 16384,
  NODE_CHARACTERS = 255, NODE_OCTETS = 4 * NODE_CHARACTERS + 1, JSON_DEPTH = 32,
  WINDOW = 64,        /* sequences of the receive flow from the next one on that may be held */
  OUTBOX_OCTETS = 32768, OUT_OCTETS = 32768, LOSS_TICKS = 10, RESUME_TICKS = 5, UNCLAIMED = 16, ALIGN = 64
};

struct range { uint64_t first, end; };
struct ranges { struct range *of; uint32_t count, capacity; }; /* disjoint, ascending, not adjacent */

/* A message in the ring.  The slot thread writes the first three before it publishes the entry. */
struct entry {
  uint64_t offset, sequence; /* where its header is, in octets since the ring was made */
  uint32_t octets;           /* of the payload */
  uint32_t flags;
  uint16_t owed, rejected;   /* by peers, a bit each: not acknowledged; refused for good */
  uint64_t sent_mono_ns, before_octets; /* payload octets of the flow that were sent before it */
};

/* What a flow knows of a peer that it sends to. */
struct receiver {
  uint64_t first_owed, consumed;
  uint64_t refused_end; /* it had no room for messages below; 0: it had */
  uint64_t resumed_at;
  uint32_t resuming_ticks;           /* left for it to say what it misses, after it came back */
  struct ranges doubtful, announced; /* evicted, and not known to have arrived; of these, announced as abandoned */
};

struct twinlink_flow {
  /* Written by the slot thread alone. */
  struct { uint64_t sequence, position, octets, tail_position, tail_octets, reserved_at; size_t reserved; } producer;
  _Alignas(ALIGN) _Atomic uint64_t committed; /* entries published */
  _Atomic uint64_t offered;                   /* numbers given out, those that found no room included */
  /* Written by the link thread alone. */
  _Alignas(ALIGN) _Atomic uint64_t tail_position;
  _Atomic uint64_t tail_octets; /* the slot thread may write up to one ring beyond these two */
  uint64_t taken, sent, kept_tail, tail; /* positions: seen here; transmitted or passed; first kept; first indexed */
  uint64_t taken_end;                    /* octets of the ring, up to the end of the last entry taken */
  uint64_t next_sequence, sent_octets, abandoned_end;
  uint64_t unanswered, resent_in_flight;
  struct ranges requested, abandoned[2]; /* to be retransmitted; to be announced, by reason */
  bool probe;
  uint64_t awaited[5], stalled_at;
  uint32_t stalled_ticks;
  struct twinlink_flow_stats stats;
  struct receiver *receivers; /* PEERS of them */
  /* Not changed once it is made. */
  _Alignas(ALIGN) struct twinlink *link;
  struct entry *entries;
  uint8_t *ring;
  uint64_t ring_octets, messages, reserve_octets, window_octets, epoch, max_octets;
  char name[TWINLINK_NAME_OCTETS], topic[TWINLINK_TOPIC_OCTETS];
};

/* What has come on the receive flow from a peer. */
struct stream {
  bool begun;
  uint64_t next_due, next, refused_end; /* to be delivered; above the highest that is expected; seen beyond the window */
  int16_t held[WINDOW];                 /* by sequence modulo WINDOW: where its payload is; -1: missing */
  struct ranges given_up, conflated, rejected;
};

struct peer {
  enum peer_state state;
  uint64_t epoch, confirmed, heard_mono, confirmed_mono, state_mono, hello_number, hello_sent_ns;
  uint64_t start_sent; /* number of the first hello that said what is owed to it */
  uint64_t start;      /* of the receive flow, what it owes this node first */
  uint64_t max_payload;
  bool repairs, repairs_flow, start_known, shares_name;
  char node[NODE_OCTETS];
  struct stream stream;
};

struct held { bool used; uint32_t octets; uint64_t sent_ns; uint8_t *payload; };
struct unclaimed { uint64_t epoch, next; char flow[TWINLINK_NAME_OCTETS]; };
struct reassembly { uint64_t epoch, sent_ns; size_t octets, whole; };

struct twinlink {
  struct twinlink_config config; /* its strings are not valid: those below are */
  char node[NODE_OCTETS], receive_flow[TWINLINK_NAME_OCTETS];
  uint64_t mono_ns, now_ns, started_mono, number_origin, heartbeat_mono, tick_mono, flow_tick_mono, drained_mono;
  uint64_t answered_mono, in_flight, acks_sent, hello_number;
  bool hello_due, answer_due, bye_due, closed;
  uint16_t up, suspended; /* peers, a bit each */
  uint32_t turn;          /* the flow that is asked first for a frame */
  struct peer *peers;
  struct twinlink_flow *flows;
  struct held *held;
  uint8_t *whole; /* a frame that comes in fragments */
  struct reassembly reassembly;
  struct unclaimed unclaimed[UNCLAIMED];
  uint32_t unclaimed_turn;
  uint64_t malformed[M_KINDS], malformed_mono[M_KINDS];
  struct twinlink_stats stats;
  struct range scratch[MAX_RANGES], copy[PEER_RANGES];
  uint8_t *outbox, *out;
  size_t outbox_first, outbox_end, last_ack; /* where the last frame is, if it is an ack; else SIZE_MAX */
};

/* ---- Octets ---- */

static uint64_t get(const uint8_t *from, int octets)
{
  uint64_t value = 0;
  for (int i = 0; i < octets; i++)
    value = value << 8 | from[i];
  return value;
}

static void put(uint8_t *to, uint64_t value, int octets)
{
  for (int i = octets - 1; i >= 0; i--, value >>= 8)
    to[i] = (uint8_t)value;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t since(uint64_t now, uint64_t then) { return now > then ? now - then : 0; }

static void put_header(uint8_t *to, enum kind kind, uint64_t body, uint64_t epoch, uint64_t sequence, uint64_t sent_ns)
{
  to[0] = 'T', to[1] = 'L', to[2] = 1, to[3] = (uint8_t)kind;
  put(to + 4, body, 4), put(to + 8, epoch, 8), put(to + 16, sequence, 8), put(to + 24, sent_ns, 8);
}

/* ---- Ranges ---- */

/* False: there is no room for one more, and nothing has changed. */
static bool ranges_add(struct ranges *set, uint64_t first, uint64_t end)
{
  if (first >= end)
    return true;
  uint32_t low = 0;
  while (low < set->count && set->of[low].end < first)
    low++;
  uint32_t high = low;
  while (high < set->count && set->of[high].first <= end)
    high++;
  if (high == low && set->count == set->capacity)
    return false;
  if (high > low) {
    first = least(first, set->of[low].first);
    end = most(end, set->of[high - 1].end);
  }
  memmove(set->of + low + 1, set->of + high, (set->count - high) * sizeof(struct range));
  set->count = set->count - (high - low) + 1;
  set->of[low] = (struct range){first, end};
  return true;
}

/* What is left of a range that is split, and has no room, stays whole. */
static bool ranges_remove(struct ranges *set, uint64_t first, uint64_t end)
{
  bool removed = false;
  for (uint32_t i = 0; i < set->count;) {
    struct range *one = set->of + i;
    if (one->end <= first || one->first >= end) {
      i++;
    } else if (first <= one->first && one->end <= end) {
      memmove(one, one + 1, (--set->count - i) * sizeof *one);
      removed = true;
    } else if (first <= one->first) {
      one->first = end, removed = true, i++;
    } else if (end >= one->end) {
      one->end = first, removed = true, i++;
    } else {
      if (set->count == set->capacity)
        return false;
      memmove(one + 1, one, (set->count++ - i) * sizeof *one);
      one[0].end = first, one[1].first = end;
      return true;
    }
  }
  return removed;
}

/* The range that has this number, or NULL. */
static const struct range *range_with(const struct range *of, uint32_t count, uint64_t sequence)
{
  for (uint32_t i = 0; i < count && of[i].first <= sequence; i++)
    if (sequence < of[i].end)
      return of + i;
  return NULL;
}

static bool ranges_have(const struct ranges *set, uint64_t sequence)
{
  return range_with(set->of, set->count, sequence) != NULL;
}

/* The next part of *at to end that is wholly inside or outside of these ranges. */
static bool next_part(const struct range *of, uint32_t count, uint64_t *at, uint64_t end, struct range *part,
                      bool *inside)
{
  if (*at >= end)
    return false;
  *part = (struct range){*at, end};
  *inside = false;
  for (uint32_t i = 0; i < count; i++) {
    if (of[i].end <= *at)
      continue;
    *inside = of[i].first <= *at;
    part->end = least(end, *inside ? of[i].end : of[i].first);
    break;
  }
  *at = part->end;
  return true;
}

/* ---- The ring of a flow: slot thread ---- */

static uint64_t ring_space(uint64_t octets) { return (HEADER + octets + 15) & ~(uint64_t)15; }

/* Where a message of so much space begins: in one piece, so perhaps at the beginning of the ring. */
static uint64_t ring_place(const twinlink_flow *flow, uint64_t space)
{
  uint64_t at = flow->producer.octets, place = at % flow->ring_octets;
  return place + space > flow->ring_octets ? at + flow->ring_octets - place : at;
}

static bool ring_has_room(const twinlink_flow *flow, uint64_t at, uint64_t space)
{
  uint64_t tail = flow->producer.tail_octets;
  if (tail == flow->producer.octets)
    tail = at; /* it is empty, so what is passed at its end holds nothing */
  return flow->producer.position - flow->producer.tail_position < flow->messages &&
         at + space - tail <= flow->ring_octets;
}

void *twinlink_reserve(twinlink_flow *flow, size_t octets)
{
  uint64_t space = ring_space(octets), at = ring_place(flow, space);
  bool fits = octets <= flow->max_octets && space <= flow->ring_octets;
  if (fits && !ring_has_room(flow, at, space)) {
    flow->producer.tail_position = atomic_load_explicit(&flow->tail_position, memory_order_acquire);
    flow->producer.tail_octets = atomic_load_explicit(&flow->tail_octets, memory_order_acquire);
    fits = ring_has_room(flow, at, space);
  }
  if (!fits) {
    flow->producer.reserved_at = UINT64_MAX;
    atomic_store_explicit(&flow->offered, ++flow->producer.sequence, memory_order_release);
    return NULL;
  }
  flow->producer.reserved_at = at;
  flow->producer.reserved = octets;
  return flow->ring + at % flow->ring_octets + HEADER;
}

uint64_t twinlink_commit(twinlink_flow *flow, size_t octets, uint64_t now_ns)
{
  uint64_t at = flow->producer.reserved_at, sequence = flow->producer.sequence;
  if (at == UINT64_MAX)
    return UINT64_MAX;
  if (octets > flow->producer.reserved)
    octets = flow->producer.reserved;
  put_header(flow->ring + at % flow->ring_octets, DATA, octets, flow->epoch, sequence, now_ns);
  struct entry *entry = flow->entries + (flow->producer.position & (flow->messages - 1));
  entry->offset = at, entry->sequence = sequence, entry->octets = (uint32_t)octets;
  flow->producer.octets = at + ring_space(octets);
  flow->producer.reserved_at = UINT64_MAX;
  flow->producer.sequence = sequence + 1;
  atomic_store_explicit(&flow->committed, ++flow->producer.position, memory_order_release);
  /* After `committed`: a number that is given out and has no entry is that of a dropped message. */
  atomic_store_explicit(&flow->offered, sequence + 1, memory_order_release);
  return sequence;
}

bool twinlink_send(twinlink_flow *flow, const void *payload, size_t octets, uint64_t now_ns)
{
  void *place = twinlink_reserve(flow, octets);
  if (place == NULL)
    return false;
  if (octets > 0)
    memcpy(place, payload, octets);
  twinlink_commit(flow, octets, now_ns);
  return true;
}

/* ---- Frames ---- */

static void report(twinlink *link, struct twinlink_event event)
{
  event.node = event.node != NULL ? event.node : "";
  event.flow = event.flow != NULL ? event.flow : "";
  event.reason = event.reason != NULL ? event.reason : "";
  if (link->config.on_event != NULL)
    link->config.on_event(link->config.context, &event);
}

static void count_malformed(twinlink *link, enum malformed reason)
{
  uint64_t count = ++link->malformed[reason];
  link->stats.malformed++;
  if (count > 1 && since(link->mono_ns, link->malformed_mono[reason]) < SECOND_NS)
    return;
  link->malformed_mono[reason] = link->mono_ns;
  report(link, (struct twinlink_event){.kind = TWINLINK_MALFORMED, .first = count, .reason = MALFORMED_NAMES[reason]});
}

/* Room in the outbox for a control frame; NULL: none is left, and the peer will ask again. */
static uint8_t *control(twinlink *link, enum kind kind, const char *flow, uint64_t sequence, size_t body)
{
  size_t name = strlen(flow), topic = 4 + name, size = HEADER + body;
  if (link->outbox_first == link->outbox_end)
    link->outbox_first = link->outbox_end = 0;
  if (link->closed || link->outbox_end + 4 + topic + size > OUTBOX_OCTETS) {
    link->stats.control_dropped++;
    return NULL;
  }
  uint8_t *at = link->outbox + link->outbox_end;
  link->last_ack = kind == ACK ? link->outbox_end : SIZE_MAX;
  link->outbox_end += 4 + topic + size;
  put(at, topic, 2), put(at + 2, size, 2);
  memcpy(at + 4, "ack/", 4), memcpy(at + 8, flow, name);
  put_header(at + 4 + topic, kind, body, link->config.epoch, sequence, 0);
  return at + 4 + topic + HEADER;
}

/* The ranges of a body from its octet `at` on, in link->scratch; -1: malformed. */
static int parse_ranges(twinlink *link, const uint8_t *body, size_t octets, size_t at)
{
  if (octets < at || (octets - at) % 16 != 0 || (octets - at) / 16 > MAX_RANGES)
    return -1;
  int count = (int)((octets - at) / 16);
  for (int i = 0; i < count; i++) {
    struct range *one = link->scratch + i;
    *one = (struct range){get(body + at + 16 * (size_t)i, 8), get(body + at + 16 * (size_t)i + 8, 8)};
    if (one->first >= one->end || one->end > MAX_SEQUENCE || (i > 0 && one->first <= one[-1].end))
      return -1;
  }
  return count;
}

/* The flow's name in a topic of this kind ("traffic/" or "ack/"), copied; false: it is another. */
static bool flow_of(const char *topic, size_t octets, const char *prefix, char *name)
{
  size_t begin = strlen(prefix);
  if (octets <= begin || octets - begin >= TWINLINK_NAME_OCTETS || memcmp(topic, prefix, begin) != 0)
    return false;
  memcpy(name, topic + begin, octets - begin);
  name[octets - begin] = 0;
  for (const char *c = name; c < name + (octets - begin); c++) {
    bool alphanumeric = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
    if (!alphanumeric && (c == name || (*c != '.' && *c != '_' && *c != '-')))
      return false;
  }
  return true;
}

/* ---- Hellos: JSON ---- */

struct json { const uint8_t *at, *end; bool ok; };

struct hello {
  char node[NODE_OCTETS];
  bool has_node, has_heard, has_flows, hears_us, owes_us, owes_flow, repairs, behind, detects_flow;
  uint64_t confirmed, flow_next, flow_owed, max_payload;
};

static int json_peek(struct json *json)
{
  while (json->at < json->end && (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r'))
    json->at++;
  return json->ok && json->at < json->end ? *json->at : -1;
}

static bool json_take(struct json *json, int c)
{
  if (json_peek(json) != c)
    return json->ok = false;
  json->at++;
  return true;
}

/* Whether one more member or element comes; takes the comma before it, or the end. */
static bool json_more(struct json *json, int end, bool *first)
{
  bool begins = *first;
  *first = false;
  if (json_peek(json) == end) {
    json->at++;
    return false;
  }
  return begins ? json->ok : json_take(json, ',');
}

static bool json_word(struct json *json, const char *word)
{
  size_t octets = strlen(word);
  json_peek(json);
  if ((size_t)(json->end - json->at) < octets || memcmp(json->at, word, octets) != 0)
    return false;
  json->at += octets;
  return true;
}

static bool json_bool(struct json *json)
{
  if (json_word(json, "true"))
    return true;
  json->ok = json->ok && json_word(json, "false");
  return false;
}

static uint64_t json_number(struct json *json)
{
  uint64_t value = 0;
  if (json_peek(json) < '0' || *json->at > '9')
    json->ok = false;
  const uint8_t *begin = json->at;
  for (; json->ok && json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++) {
    if (value > (MAX_SEQUENCE - (*json->at - '0')) / 10)
      json->ok = false;
    else
      value = value * 10 + (*json->at - '0');
  }
  if (json->at - begin > 1 && *begin == '0')
    json->ok = false;
  if (json->at < json->end && (*json->at == '.' || *json->at == 'e' || *json->at == 'E'))
    json->ok = false;
  return value;
}

static uint32_t json_hex4(struct json *json)
{
  uint32_t value = 0;
  for (int i = 0; i < 4; i++) {
    int c = json->at < json->end ? *json->at++ : 0;
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0)
      json->ok = false;
    value = value << 4 | ((uint32_t)digit & 15);
  }
  return value;
}

static uint32_t json_escape(struct json *json)
{
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  int c = json->at < json->end ? *json->at++ : 0;
  const char *found = c != 0 ? strchr(names, c) : NULL;
  if (found != NULL)
    return (uint32_t)values[found - names];
  if (c != 'u') {
    json->ok = false;
    return 0;
  }
  uint32_t value = json_hex4(json);
  if (value < 0xd800 || value > 0xdfff)
    return value;
  bool pair = value < 0xdc00 && json->end - json->at >= 6 && json->at[0] == '\\' && json->at[1] == 'u';
  if (pair)
    json->at += 2;
  uint32_t low = pair ? json_hex4(json) : 0;
  if (low < 0xdc00 || low > 0xdfff)
    json->ok = false;
  return 0x10000 + ((value & 0x3ff) << 10) + (low & 0x3ff);
}

/* A character of UTF-8 (RFC 3629). */
static uint32_t json_utf8(struct json *json)
{
  uint32_t first = *json->at++;
  if (first < 0x80)
    return first;
  int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  uint32_t value = first & (0x3fu >> more);
  static const uint32_t lowest[] = {0, 0x80, 0x800, 0x10000};
  if (first < 0xc2 || first > 0xf4 || json->end - json->at < more)
    return json->ok = false;
  for (int i = 0; i < more; i++, json->at++) {
    json->ok = json->ok && (*json->at & 0xc0) == 0x80;
    value = value << 6 | (*json->at & 0x3f);
  }
  if (value < lowest[more] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
    json->ok = false;
  return value;
}

static size_t put_utf8(char *to, uint32_t c)
{
  if (c < 0x80)
    return to[0] = (char)c, 1;
  if (c < 0x800)
    return to[0] = (char)(0xc0 | c >> 6), to[1] = (char)(0x80 | (c & 0x3f)), 2;
  if (c < 0x10000)
    return to[0] = (char)(0xe0 | c >> 12), to[1] = (char)(0x80 | (c >> 6 & 0x3f)), to[2] = (char)(0x80 | (c & 0x3f)), 3;
  to[0] = (char)(0xf0 | c >> 18), to[1] = (char)(0x80 | (c >> 12 & 0x3f)), to[2] = (char)(0x80 | (c >> 6 & 0x3f));
  return to[3] = (char)(0x80 | (c & 0x3f)), 4;
}

/* A string, as UTF-8 into `to` as far as it fits; returns its characters.  *printable: it has no control character. */
static size_t json_string(struct json *json, char *to, size_t room, bool *printable)
{
  size_t characters = 0, at = 0;
  char one[4];
  *printable = true;
  json_take(json, '"');
  while (json->ok && json->at < json->end && *json->at != '"') {
    if (*json->at < 0x20) {
      json->ok = false;
      break;
    }
    bool escaped = *json->at == '\\';
    json->at += escaped;
    uint32_t c = escaped ? json_escape(json) : json_utf8(json);
    if (c < 0x20 || (c >= 0x7f && c < 0xa0))
      *printable = false;
    size_t octets = put_utf8(one, c);
    characters++;
    if (at + octets < room)
      memcpy(to + at, one, octets), at += octets;
    else
      room = 0; /* it does not fit: nothing that follows belongs behind what did */
  }
  if (room > 0 || at > 0)
    to[at] = 0;
  json->ok = json->ok && json->at < json->end;
  json->at += json->ok;
  return characters;
}

static void json_skip(struct json *json, int depth)
{
  int c = json_peek(json);
  bool first = true, printable;
  char text[8];
  if (depth == 0 || c < 0) {
    json->ok = false;
  } else if (c == '"') {
    json_string(json, text, sizeof text, &printable);
  } else if (c == '{' || c == '[') {
    json->at++;
    while (json_more(json, c + 2, &first)) { /* in ASCII, both brackets end two further on */
      if (c == '{')
        json_string(json, text, sizeof text, &printable), json_take(json, ':');
      json_skip(json, depth - 1);
    }
  } else if (!json_word(json, "true") && !json_word(json, "false") && !json_word(json, "null")) {
    const uint8_t *begin = json->at;
    while (json->at < json->end && *json->at != 0 && strchr("+-.0123456789eE", *json->at) != NULL)
      json->at++;
    json->ok = json->ok && json->at > begin;
  }
}

/* The key of a member, with the colon. */
static void json_key(struct json *json, char *key, size_t room)
{
  bool printable;
  json_string(json, key, room, &printable);
  json_take(json, ':');
}

static bool parse_epoch(const char *text, uint64_t *epoch)
{
  *epoch = 0;
  for (int i = 0; i < 16; i++) {
    char c = text[i];
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
      return false;
    *epoch = *epoch << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  return text[16] == 0;
}

/* An object of numbers: that of the member `wanted` into *value, if it has it. */
static bool json_numbers(struct json *json, const char *wanted, uint64_t *value)
{
  bool first = true, found = false;
  char key[TWINLINK_NAME_OCTETS + 8];
  json_take(json, '{');
  while (json_more(json, '}', &first)) {
    json_key(json, key, sizeof key);
    uint64_t number = json_number(json);
    if (json->ok && strcmp(key, wanted) == 0)
      *value = number, found = true;
  }
  return found;
}

static void parse_heard(struct json *json, const twinlink *link, struct hello *hello)
{
  bool first = true;
  char key[24];
  uint64_t epoch;
  json_take(json, '{');
  while (json_more(json, '}', &first)) {
    json_key(json, key, sizeof key);
    uint64_t number = json_number(json);
    if (!json->ok || !parse_epoch(key, &epoch))
      json->ok = false;
    else if (epoch == link->config.epoch)
      hello->hears_us = true, hello->confirmed = number;
  }
}

static void parse_since(struct json *json, const twinlink *link, struct hello *hello)
{
  bool first = true;
  char key[24];
  uint64_t epoch, owed = 0;
  json_take(json, '{');
  while (json_more(json, '}', &first)) {
    json_key(json, key, sizeof key);
    bool found = json_numbers(json, link->receive_flow, &owed);
    if (!json->ok || !parse_epoch(key, &epoch))
      json->ok = false;
    else if (epoch == link->config.epoch)
      hello->owes_us = true, hello->owes_flow = found, hello->flow_owed = owed;
  }
}

static void parse_detect(struct json *json, const twinlink *link, struct hello *hello)
{
  bool first = true, printable;
  char flow[TWINLINK_NAME_OCTETS + 8];
  json_take(json, '[');
  while (json_more(json, ']', &first)) {
    json_string(json, flow, sizeof flow, &printable);
    if (json->ok && strcmp(flow, link->receive_flow) == 0)
      hello->detects_flow = true;
  }
}

static bool parse_hello(const twinlink *link, const uint8_t *body, size_t octets, struct hello *hello)
{
  struct json json = {body, body + octets, octets <= MAX_HELLO};
  bool first = true, printable = true;
  char key[24];
  *hello = (struct hello){.max_payload = TWINLINK_MAX_PAYLOAD};
  json_take(&json, '{');
  while (json_more(&json, '}', &first)) {
    json_key(&json, key, sizeof key);
    if (strcmp(key, "node") == 0) {
      size_t characters = json_string(&json, hello->node, sizeof hello->node, &printable);
      hello->has_node = printable && characters >= 1 && characters <= NODE_CHARACTERS;
    } else if (strcmp(key, "heard") == 0) {
      parse_heard(&json, link, hello), hello->has_heard = true;
    } else if (strcmp(key, "flows") == 0) {
      json_numbers(&json, link->receive_flow, &hello->flow_next), hello->has_flows = true;
    } else if (strcmp(key, "since") == 0) {
      parse_since(&json, link, hello);
    } else if (strcmp(key, "detect") == 0) {
      parse_detect(&json, link, hello);
    } else if (strcmp(key, "repairs") == 0) {
      hello->repairs = json_bool(&json);
    } else if (strcmp(key, "behind") == 0) {
      hello->behind = json_bool(&json);
    } else if (strcmp(key, "max_payload") == 0) {
      hello->max_payload = json_number(&json);
    } else {
      json_skip(&json, JSON_DEPTH);
    }
  }
  bool ended = json_peek(&json) < 0;
  return json.ok && ended && hello->has_node && hello->has_heard && hello->has_flows;
}

/* ---- Losses, and messages that are kept ---- */

static struct entry *entry_at(const twinlink_flow *flow, uint64_t position)
{
  return flow->entries + (position & (flow->messages - 1));
}

/* The first position from the oldest on whose message has this number or a higher one. */
static uint64_t find_position(const twinlink_flow *flow, uint64_t sequence)
{
  uint64_t low = flow->tail, high = flow->taken;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (entry_at(flow, middle)->sequence < sequence)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* A message that has been sent, or passed for peers that are down, and is kept; NULL: it is not. */
static struct entry *find_kept(const twinlink_flow *flow, uint64_t sequence)
{
  uint64_t position = find_position(flow, sequence);
  struct entry *entry = entry_at(flow, position);
  return position < flow->sent && entry->sequence == sequence && (entry->flags & KEPT) ? entry : NULL;
}

static uint64_t next_to_send(const twinlink_flow *flow)
{
  return flow->sent < flow->taken ? entry_at(flow, flow->sent)->sequence : flow->next_sequence;
}

static uint16_t all_peers(const twinlink *link) { return link->up | link->suspended; }
static uint16_t bit(uint32_t peer) { return (uint16_t)(1u << peer); }

static uint16_t repairing(const twinlink *link)
{
  uint16_t mask = 0;
  for (uint32_t i = 0; i < PEERS; i++)
    if ((link->up & bit(i)) && link->peers[i].repairs)
      mask |= bit(i);
  return mask;
}

/* Every peer that is up has consumed what is below; all that was sent, if there is none. */
static uint64_t consumed_by_all(const twinlink_flow *flow)
{
  uint64_t consumed = next_to_send(flow);
  for (uint32_t i = 0; i < PEERS; i++)
    if (flow->link->up & bit(i))
      consumed = least(consumed, flow->receivers[i].consumed);
  return consumed;
}

/* Octets that were sent and are not consumed. */
static uint64_t unconsumed(const twinlink_flow *flow)
{
  uint64_t position = find_position(flow, consumed_by_all(flow));
  return position < flow->sent ? flow->sent_octets - entry_at(flow, position)->before_octets : 0;
}

static void report_lost(twinlink_flow *flow, const struct peer *peer, uint64_t first, uint64_t end, const char *reason)
{
  if (first >= end)
    return;
  flow->stats.lost += end - first;
  report(flow->link, (struct twinlink_event){TWINLINK_LOST, peer != NULL ? peer->epoch : 0,
                                             peer != NULL ? peer->node : "", flow->name, first, end, reason});
}

static void land(twinlink_flow *flow, struct entry *entry)
{
  if (!(entry->flags & IN_FLIGHT))
    return;
  flow->link->in_flight -= entry->octets + FRAMING_OCTETS;
  flow->resent_in_flight -= (entry->flags & RESENT) != 0;
  entry->flags &= ~(uint32_t)IN_FLIGHT;
}

/* Gives the slot thread the room of what is not kept any more, and not needed to count what is unconsumed. */
static void free_room(twinlink_flow *flow)
{
  while (flow->kept_tail < flow->taken && !(entry_at(flow, flow->kept_tail)->flags & KEPT))
    flow->kept_tail++;
  uint64_t octets = flow->kept_tail < flow->taken ? entry_at(flow, flow->kept_tail)->offset : flow->taken_end;
  uint64_t consumed = consumed_by_all(flow), end = least(flow->kept_tail, flow->sent);
  while (flow->tail < end && entry_at(flow, flow->tail)->sequence < consumed)
    flow->tail++;
  atomic_store_explicit(&flow->tail_octets, octets, memory_order_release);
  atomic_store_explicit(&flow->tail_position, flow->tail, memory_order_release);
}

static void drop_kept(twinlink_flow *flow, struct entry *entry)
{
  land(flow, entry);
  entry->flags = 0;
  entry->owed = 0;
}

/* This peer owes no ack for it any more; true: it did. */
static bool settle(twinlink_flow *flow, struct entry *entry, uint32_t peer)
{
  if (!(entry->owed & bit(peer)))
    return false;
  entry->owed &= (uint16_t)~bit(peer);
  if (entry->owed == 0)
    drop_kept(flow, entry);
  else if (!(entry->owed & flow->link->up))
    land(flow, entry);
  return true;
}

/* Announces that these will not come.  What other peers may have of them, and do not lack hereafter, they may have given
 * up because of this: so it counts as lost to them unless they acknowledge it. */
static void abandon(twinlink_flow *flow, enum abandon_reason reason, uint64_t first, uint64_t end)
{
  if (first >= end || !all_peers(flow->link) || !ranges_add(&flow->abandoned[reason], first, end))
    return;
  for (uint32_t i = 0; i < PEERS; i++) {
    struct receiver *receiver = flow->receivers + i;
    for (uint32_t k = 0; k < receiver->doubtful.count; k++) {
      struct range one = receiver->doubtful.of[k];
      one = (struct range){most(one.first, first), least(one.end, end)};
      if (one.first >= one.end)
        continue;
      bool added = ranges_add(&receiver->announced, one.first, one.end);
      if (!added) { /* no room to await an answer: it counts as lost now */
        one = receiver->doubtful.of[k];
        report_lost(flow, flow->link->peers + i, one.first, one.end, REASON_EVICTED);
      }
      if (ranges_remove(&receiver->doubtful, one.first, one.end))
        k = UINT32_MAX; /* the list has changed: begin anew */
    }
  }
}

/* The oldest message makes room.  Whether peers have it is asked when they are back, unless it was never sent. */
static void evict(twinlink_flow *flow)
{
  uint64_t position = flow->kept_tail;
  struct entry *entry = entry_at(flow, position);
  for (uint32_t i = 0; i < PEERS; i++) {
    if (!(entry->owed & bit(i)))
      continue;
    if (position >= flow->sent || !ranges_add(&flow->receivers[i].doubtful, entry->sequence, entry->sequence + 1))
      report_lost(flow, flow->link->peers + i, entry->sequence, entry->sequence + 1, REASON_EVICTED);
  }
  if (position >= flow->sent) {
    abandon(flow, EVICTED, entry->sequence, entry->sequence + 1);
    flow->sent = position + 1;
    entry->before_octets = flow->sent_octets;
  }
  drop_kept(flow, entry);
  free_room(flow);
}

/* Keeps room for new messages, at the cost of those that only peers that are down have not acknowledged. */
static void make_room(twinlink_flow *flow)
{
  free_room(flow);
  while (flow->kept_tail < flow->taken && !(entry_at(flow, flow->kept_tail)->owed & flow->link->up)) {
    uint64_t used = flow->taken_end - entry_at(flow, flow->kept_tail)->offset;
    if (flow->ring_octets - used >= flow->reserve_octets && flow->taken - flow->tail < flow->messages - flow->messages / 8)
      return;
    evict(flow);
  }
}

static void note_dropped(twinlink_flow *flow, uint64_t end)
{
  if (end <= flow->next_sequence)
    return;
  flow->stats.dropped += end - flow->next_sequence;
  report_lost(flow, NULL, flow->next_sequence, end, REASON_DROPPED);
  abandon(flow, DROPPED, flow->next_sequence, end);
  flow->next_sequence = end;
}

static void take_message(twinlink_flow *flow)
{
  twinlink *link = flow->link;
  struct entry *entry = entry_at(flow, flow->taken);
  note_dropped(flow, entry->sequence);
  entry->flags = KEPT, entry->owed = all_peers(link), entry->rejected = 0, entry->before_octets = flow->sent_octets;
  flow->next_sequence = entry->sequence + 1;
  flow->taken_end = entry->offset + ring_space(entry->octets);
  flow->taken++;
  for (uint32_t i = 0; i < PEERS; i++) {
    if ((entry->owed & bit(i)) && link->peers[i].max_payload < entry->octets) {
      entry->owed &= (uint16_t)~bit(i);
      report_lost(flow, link->peers + i, entry->sequence, flow->next_sequence, REASON_TOO_LONG);
    }
  }
  if (!all_peers(link))
    report_lost(flow, NULL, entry->sequence, flow->next_sequence, REASON_NO_PEER);
  else if (entry->owed != all_peers(link)) /* a frame reaches all, and this one not in fragments: it is for none */
    for (uint32_t i = 0; i < PEERS; i++)
      if (entry->owed & bit(i))
        report_lost(flow, link->peers + i, entry->sequence, flow->next_sequence, REASON_TOO_LONG);
  if (entry->owed != all_peers(link) || !entry->owed) {
    abandon(flow, DROPPED, entry->sequence, flow->next_sequence);
    drop_kept(flow, entry);
  }
}

/* Takes over what the slot thread has written. */
static void take_messages(twinlink_flow *flow)
{
  uint64_t offered = atomic_load_explicit(&flow->offered, memory_order_acquire);
  uint64_t committed = atomic_load_explicit(&flow->committed, memory_order_acquire);
  while (flow->taken < committed)
    take_message(flow);
  note_dropped(flow, offered);
  if (!all_peers(flow->link)) {
    flow->sent = flow->taken;
    flow->abandoned[EVICTED].count = flow->abandoned[DROPPED].count = flow->requested.count = 0;
  }
  make_room(flow);
}

/* Everything that this peer has not acknowledged is lost to it, and what a successor of it has acknowledged is not. */
static void lose_all(twinlink *link, uint32_t peer, const char *reason, int successor)
{
  for (uint32_t f = 0; f < link->config.flow_count; f++) {
    twinlink_flow *flow = link->flows + f;
    struct receiver *receiver = flow->receivers + peer;
    bool taken_over = successor >= 0 && (all_peers(link) & bit((uint32_t)successor));
    uint64_t end = taken_over ? flow->receivers[successor].first_owed : MAX_SEQUENCE;
    struct range lost = {0, 0};
    for (uint64_t at = flow->kept_tail; at < flow->taken; at++) {
      struct entry *entry = entry_at(flow, at);
      entry->rejected &= (uint16_t)~bit(peer);
      if (!settle(flow, entry, peer) || entry->sequence >= end)
        continue;
      if (entry->sequence != lost.end || lost.first == lost.end) {
        report_lost(flow, link->peers + peer, lost.first, lost.end, reason);
        lost.first = entry->sequence;
      }
      lost.end = entry->sequence + 1;
    }
    report_lost(flow, link->peers + peer, lost.first, lost.end, reason);
    for (uint32_t i = 0; i < receiver->announced.count; i++)
      report_lost(flow, link->peers + peer, receiver->announced.of[i].first, receiver->announced.of[i].end, reason);
    for (uint32_t i = 0; i < receiver->doubtful.count; i++)
      report_lost(flow, link->peers + peer, receiver->doubtful.of[i].first, receiver->doubtful.of[i].end, reason);
    receiver->announced.count = receiver->doubtful.count = 0;
    free_room(flow);
  }
}

/* ---- Peers ---- */

static uint16_t mask_of(const twinlink *link, const struct peer *peer) { return bit((uint32_t)(peer - link->peers)); }
static bool is_heard(const struct peer *peer) { return peer->state >= HEARD && peer->state <= DEAF; }
static bool is_suspended(const struct peer *peer) { return peer->state == DEAF || peer->state == SILENT; }

static struct peer *find_peer(twinlink *link, uint64_t epoch)
{
  for (uint32_t i = 0; i < PEERS; i++)
    if (link->peers[i].state != FREE && link->peers[i].epoch == epoch)
      return link->peers + i;
  return NULL;
}

static void end_stream(twinlink *link, struct peer *peer);
static void start_stream(twinlink *link, struct peer *peer, uint64_t start);

static void report_peer(twinlink *link, enum twinlink_event_kind kind, const struct peer *peer, const char *reason,
                        uint64_t successor)
{
  report(link, (struct twinlink_event){kind, peer->epoch, peer->node, "", successor, 0, reason});
}

/* What is queued for others reaches a new peer as well; the first number that it owes an ack for. */
static uint64_t owe_queued(twinlink_flow *flow, const struct peer *peer, uint16_t mask)
{
  uint64_t first = flow->next_sequence;
  for (uint64_t at = flow->taken; at > flow->sent; at--) {
    struct entry *entry = entry_at(flow, at - 1);
    if (!(entry->flags & KEPT) || !(entry->owed & flow->link->up) || entry->octets > peer->max_payload)
      break;
    entry->owed |= mask;
    first = entry->sequence;
  }
  return first;
}

static void come_up(twinlink *link, struct peer *peer)
{
  uint32_t index = (uint32_t)(peer - link->peers);
  for (uint32_t f = 0; f < link->config.flow_count; f++) {
    twinlink_flow *flow = link->flows + f;
    struct receiver *receiver = flow->receivers + index;
    take_messages(flow);
    receiver->refused_end = 0;
    if (link->suspended & bit(index)) {
      receiver->resumed_at = next_to_send(flow), receiver->resuming_ticks = RESUME_TICKS;
      flow->probe = true;
    } else {
      receiver->first_owed = owe_queued(flow, peer, bit(index));
      receiver->consumed = receiver->first_owed;
      receiver->resuming_ticks = 0;
    }
  }
  peer->state = UP;
  link->suspended &= (uint16_t)~bit(index);
  link->up |= bit(index);
  report_peer(link, TWINLINK_PEER_UP, peer, "", 0);
}

/* It is not up any more; what is in flight to it alone is not in flight. */
static void leave_up(twinlink *link, struct peer *peer)
{
  link->up &= (uint16_t)~mask_of(link, peer);
  for (uint32_t f = 0; f < link->config.flow_count; f++) {
    twinlink_flow *flow = link->flows + f;
    for (uint64_t at = flow->kept_tail; at < flow->sent; at++)
      if (!(entry_at(flow, at)->owed & link->up))
        land(flow, entry_at(flow, at));
    flow->receivers[peer - link->peers].resuming_ticks = 0;
    free_room(flow);
  }
}

static void suspend(twinlink *link, struct peer *peer, enum peer_state state)
{
  peer->state = state, peer->state_mono = peer->confirmed = link->mono_ns;
  peer->start_sent = 0; /* said anew when it comes up again: those hellos may have been lost */
  if (peer->repairs)
    link->suspended |= mask_of(link, peer);
  leave_up(link, peer);
  report_peer(link, TWINLINK_PEER_DOWN, peer, state == DEAF ? "deaf" : "silent", 0);
  if (!peer->repairs)
    lose_all(link, (uint32_t)(peer - link->peers), REASON_ENDED, -1);
}

/* It will not return: to `state`.  `reason`: of its being down, where it was up. */
static void end_peer(twinlink *link, struct peer *peer, enum peer_state state, const char *reason,
                     const struct peer *successor, uint64_t successor_epoch)
{
  bool was_up = peer->state == UP;
  end_stream(link, peer);
  peer->state = state, peer->state_mono = link->mono_ns;
  leave_up(link, peer);
  link->suspended &= (uint16_t)~mask_of(link, peer);
  if (was_up)
    report_peer(link, TWINLINK_PEER_DOWN, peer, reason, 0);
  if (was_up && successor_epoch != 0)
    report_peer(link, TWINLINK_RESTARTED, peer, "", successor_epoch);
  lose_all(link, (uint32_t)(peer - link->peers), REASON_ENDED, successor != NULL ? (int)(successor - link->peers) : -1);
}

/* Ends the sessions of this node that a hello of another one of its sessions shows to be over. */
static void replace_predecessors(twinlink *link, const struct peer *successor, uint64_t epoch, uint64_t number,
                                 uint64_t sent_ns, const char *node)
{
  for (uint32_t i = 0; i < PEERS; i++)
    if (link->peers[i].state != FREE && link->peers[i].shares_name && strcmp(link->peers[i].node, node) == 0)
      return;
  bool fresh = successor == NULL || !is_heard(successor);
  for (uint32_t i = 0; i < PEERS; i++) {
    struct peer *other = link->peers + i;
    if (other->state == FREE || other->epoch == epoch || strcmp(other->node, node) != 0 ||
        (other->hello_number > number && other->hello_sent_ns > sent_ns))
      continue;
    bool missed = since(link->mono_ns, other->heard_mono) > RESTART_NS;
    if ((is_suspended(other) && (missed || fresh || other->state == SILENT)) || (other->state == UP && missed))
      end_peer(link, other, REPLACED, "restarted", successor, epoch);
    else if (other->state == HEARD && missed)
      other->state = LOST, other->confirmed = link->mono_ns;
  }
}

/* A record for a new session: an unused one, or that of the session that has been over for longest. */
static struct peer *make_peer(twinlink *link)
{
  struct peer *oldest = NULL;
  for (uint32_t i = 0; i < PEERS; i++) {
    struct peer *one = link->peers + i;
    if (one->state == FREE)
      return one;
    if ((one->state == LOST || one->state == REPLACED) && (oldest == NULL || one->heard_mono < oldest->heard_mono))
      oldest = one;
  }
  return oldest;
}

static struct peer *add_peer(twinlink *link, struct peer *peer, uint64_t epoch, const struct hello *hello)
{
  uint64_t confirmed = peer != NULL ? peer->confirmed : link->started_mono;
  bool known = peer != NULL, shares_name = known && peer->shares_name;
  if (!known && (peer = make_peer(link)) == NULL) {
    link->stats.peers_refused++;
    return NULL;
  }
  if (!known)
    end_stream(link, peer); /* of the session whose record it was */
  struct stream stream = peer->stream;
  *peer = (struct peer){.state = HEARD, .epoch = epoch, .confirmed = confirmed, .shares_name = shares_name,
                        .start = hello->flow_next, .stream = stream};
  return peer;
}

static void answer(twinlink *link, bool at_once)
{
  if (!at_once && since(link->mono_ns, link->answered_mono) < ANSWER_INTERVAL_NS) {
    link->answer_due = true;
    return;
  }
  link->answer_due = false, link->hello_due = true, link->answered_mono = link->mono_ns;
}

static void probe_kept(twinlink *link)
{
  for (uint32_t f = 0; f < link->config.flow_count; f++)
    if (link->flows[f].kept_tail < link->flows[f].taken)
      link->flows[f].probe = true;
}

/* A hello of `peer` that lists this node and confirms what left at `confirmed`; true: it makes the peer up. */
static bool on_confirmed(twinlink *link, struct peer *peer, uint64_t confirmed, bool behind)
{
  uint64_t now = link->mono_ns;
  if (peer->confirmed < confirmed && confirmed <= now) {
    peer->confirmed = confirmed;
    peer->confirmed_mono = most(peer->confirmed_mono, most(confirmed, since(now, HELLO_INTERVAL_NS)));
    if (peer->state == UP)
      return false;
    come_up(link, peer);
    return true;
  }
  if (behind)
    peer->confirmed_mono = now;
  return false;
}

static void on_hello(twinlink *link, uint64_t epoch, uint64_t number, uint64_t sent_ns, const uint8_t *body, size_t octets)
{
  struct hello hello;
  if (number > MAX_SEQUENCE || !parse_hello(link, body, octets, &hello)) {
    count_malformed(link, number > MAX_SEQUENCE ? M_SEQUENCE : M_HELLO);
    return;
  }
  struct peer *peer = find_peer(link, epoch);
  if (peer != NULL && peer->state == REPLACED) { /* it waited on the way, or a second node has this name */
    if (since(link->mono_ns, peer->state_mono) < REVIVAL_NS || since(number, peer->hello_number) < REVIVAL_NS)
      return;
    peer->state = LOST, peer->shares_name = true;
  }
  bool fresh = peer == NULL || !is_heard(peer);
  replace_predecessors(link, peer, epoch, number, sent_ns, hello.node);
  if (peer == NULL || peer->state == LOST)
    peer = add_peer(link, peer, epoch, &hello);
  else if (peer->state == SILENT)
    peer->state = DEAF, peer->confirmed_mono = 0;
  if (peer == NULL)
    return;
  uint64_t confirmed = hello.confirmed + link->number_origin;
  bool interrupted = peer->state == UP && (since(number, peer->hello_number) > SUSPECT_NS ||
                                           (hello.hears_us && since(confirmed, peer->confirmed) > NO_NEWS_NS));
  memcpy(peer->node, hello.node, sizeof peer->node);
  peer->repairs = hello.repairs, peer->max_payload = hello.max_payload;
  peer->repairs_flow = hello.repairs && !hello.detects_flow;
  peer->hello_number = number, peer->hello_sent_ns = sent_ns, peer->heard_mono = link->mono_ns;
  bool came_up = hello.hears_us && on_confirmed(link, peer, confirmed, hello.behind);
  if (!hello.hears_us && peer->state == UP)
    suspend(link, peer, DEAF);
  if (came_up || peer->state != UP || interrupted || fresh)
    answer(link, peer->state == UP);
  if (interrupted)
    probe_kept(link);
  if (hello.owes_us && !peer->start_known) {
    peer->start_known = true;
    if (hello.owes_flow)
      start_stream(link, peer, hello.flow_owed);
  }
}

static void on_bye(twinlink *link, uint64_t epoch)
{
  struct peer *peer = find_peer(link, epoch);
  if (peer == NULL || peer->state == REPLACED)
    return;
  end_peer(link, peer, FREE, "closed", NULL, 0);
}

static void expire_peer(twinlink *link, struct peer *peer)
{
  uint64_t good = peer->state == UP ? peer->confirmed_mono : peer->heard_mono;
  if (is_heard(peer) && (since(link->drained_mono, good) > TIMEOUT_NS ||
                         since(link->mono_ns, peer->heard_mono) > HARD_TIMEOUT_NS)) {
    if (peer->state == UP)
      suspend(link, peer, since(peer->heard_mono, good) > 2 * HELLO_INTERVAL_NS ? DEAF : SILENT);
    else
      peer->state = peer->state == DEAF ? SILENT : LOST, peer->confirmed = link->mono_ns;
    link->hello_due = true; /* a peer that cannot be heard is to know it */
  }
  if (is_suspended(peer) && since(link->mono_ns, peer->state_mono) > SUSPENDED_NS)
    end_peer(link, peer, peer->state == DEAF ? HEARD : LOST, "", NULL, 0);
}

static void expire(twinlink *link)
{
  for (uint32_t i = 0; i < PEERS; i++) {
    struct peer *peer = link->peers + i;
    if (since(link->mono_ns, link->tick_mono) > PAUSE_NS && is_heard(peer)) /* this side stood still, not its peers */
      peer->heard_mono = peer->confirmed_mono = link->mono_ns;
    if (peer->state != FREE)
      expire_peer(link, peer);
  }
}

static bool any_suspect(const twinlink *link)
{
  for (uint32_t i = 0; i < PEERS; i++) {
    const struct peer *peer = link->peers + i;
    if (peer->state == UP && (since(link->mono_ns, peer->heard_mono) > SUSPECT_NS ||
                              since(link->mono_ns, peer->confirmed_mono) > NO_NEWS_NS))
      return true;
  }
  return false;
}

/* ---- Hellos that are sent ---- */

struct text { char *to; size_t at, room; };

static void append(struct text *text, const char *more)
{
  size_t octets = strlen(more);
  if (text->at + octets < text->room)
    memcpy(text->to + text->at, more, octets), text->at += octets;
}

static void append_digits(struct text *text, uint64_t value, unsigned base, int least_digits)
{
  char digits[24];
  int at = (int)sizeof digits - 1;
  digits[at] = 0;
  for (; value > 0 || least_digits > 0; value /= base, least_digits--)
    digits[--at] = "0123456789abcdef"[value % base];
  append(text, digits + at);
}

static void append_member(struct text *text, bool *first, const char *key, uint64_t epoch)
{
  append(text, *first ? "\"" : ",\"");
  *first = false;
  if (key != NULL)
    append(text, key);
  else
    append_digits(text, epoch, 16, 16);
  append(text, "\":");
}

static void append_flows(struct text *text, const twinlink *link, const struct peer *owing)
{
  bool first = true;
  append(text, "{");
  for (uint32_t f = 0; f < link->config.flow_count; f++) {
    const twinlink_flow *flow = link->flows + f;
    append_member(text, &first, flow->name, 0);
    append_digits(text, owing != NULL ? flow->receivers[owing - link->peers].first_owed : next_to_send(flow), 10, 1);
  }
  append(text, "}");
}

static void append_since(struct text *text, twinlink *link, uint64_t number)
{
  bool first = true;
  for (uint32_t i = 0; i < PEERS; i++) {
    struct peer *peer = link->peers + i;
    if (peer->state != UP || peer->confirmed >= (peer->start_sent != 0 ? peer->start_sent : number))
      continue;
    if (peer->start_sent == 0)
      peer->start_sent = number;
    append(text, first ? ",\"since\":{" : "");
    append_member(text, &first, NULL, peer->epoch);
    append_flows(text, link, peer);
  }
  append(text, first ? "" : "}");
}

static size_t put_hello(twinlink *link, uint8_t *to, size_t room)
{
  struct text text = {(char *)to + HEADER, 0, room - HEADER};
  bool first = true;
  append(&text, "{\"node\":\""), append(&text, link->node), append(&text, "\",\"heard\":{");
  for (uint32_t i = 0; i < PEERS; i++) {
    if (!is_heard(link->peers + i))
      continue;
    append_member(&text, &first, NULL, link->peers[i].epoch);
    append_digits(&text, link->peers[i].hello_number, 10, 1);
  }
  append(&text, "},\"flows\":"), append_flows(&text, link, NULL);
  append(&text, ",\"max_payload\":");
  append_digits(&text, link->config.receive_max_octets, 10, 1);
  append(&text, since(link->mono_ns, link->drained_mono) > BEHIND_NS ? ",\"behind\":true" : "");
  append(&text, ",\"repairs\":true,\"detect\":[]");
  append_since(&text, link, link->mono_ns);
  append(&text, "}");
  link->hello_number = most(link->hello_number + 1, link->mono_ns - link->number_origin);
  put_header(to, HELLO, text.at, link->config.epoch, link->hello_number, link->now_ns);
  return HEADER + text.at;
}

/* ---- What is sent: feedback of the peers ---- */

static void measure(twinlink *link, uint64_t t1_ns)
{
  uint64_t rtt_ns = since(link->now_ns, t1_ns);
  if (rtt_ns == 0)
    return;
  link->stats.rtt_ns = rtt_ns;
  link->stats.rtt_min_ns = link->stats.rtt_min_ns == 0 ? rtt_ns : least(link->stats.rtt_min_ns, rtt_ns);
}

/* A peer has this message; false: it is not kept, or the peer owed no ack for it. */
static bool on_acknowledged(twinlink_flow *flow, uint32_t peer, uint64_t sequence)
{
  struct entry *entry = find_kept(flow, sequence);
  if (entry != NULL) {
    if (!settle(flow, entry, peer))
      return false;
    flow->unanswered = 0;
  } else {
    struct receiver *receiver = flow->receivers + peer;
    if (!ranges_remove(&receiver->doubtful, sequence, sequence + 1) &&
        !ranges_remove(&receiver->announced, sequence, sequence + 1))
      return false;
  }
  flow->stats.acknowledged++;
  return true;
}

static void on_rejected(twinlink_flow *flow, uint32_t peer, uint64_t sequence)
{
  struct entry *entry = find_kept(flow, sequence);
  if (entry == NULL || !(entry->owed & bit(peer)))
    return;
  entry->rejected |= bit(peer);
  settle(flow, entry, peer);
  report_lost(flow, flow->link->peers + peer, sequence, sequence + 1, REASON_NOT_TAKEN);
}

static void on_consumed(twinlink_flow *flow, uint32_t peer, uint64_t consumed)
{
  twinlink *link = flow->link;
  struct receiver *receiver = flow->receivers + peer;
  if (!(link->up & bit(peer)) || consumed > next_to_send(flow))
    return;
  receiver->consumed = most(receiver->consumed, consumed);
  if (receiver->consumed >= receiver->refused_end)
    receiver->refused_end = 0;
  if (link->peers[peer].repairs)
    return;
  for (uint64_t at = flow->kept_tail; at < flow->sent && entry_at(flow, at)->sequence < consumed; at++)
    if (settle(flow, entry_at(flow, at), peer))
      report_lost(flow, link->peers + peer, entry_at(flow, at)->sequence, entry_at(flow, at)->sequence + 1,
                  REASON_SKIPPED);
}

static void on_ack(twinlink_flow *flow, struct peer *peer, const uint8_t *body, size_t octets)
{
  uint32_t index = (uint32_t)(peer - flow->link->peers);
  for (size_t at = 16; at < octets; at += 24) {
    uint64_t sequence = get(body + at, 8);
    if (get(body + at + 16, 8) == 0)
      on_rejected(flow, index, sequence);
    else if (on_acknowledged(flow, index, sequence))
      measure(flow->link, get(body + at + 8, 8));
  }
  if (octets > 16) /* without records it may tell of a message of long ago */
    peer->confirmed_mono = flow->link->mono_ns;
  on_consumed(flow, index, get(body + 8, 8));
  free_room(flow);
}

static void on_ack_range(twinlink_flow *flow, struct peer *peer, const uint8_t *body)
{
  uint32_t index = (uint32_t)(peer - flow->link->peers);
  for (uint64_t sequence = get(body + 16, 8), end = get(body + 24, 8); sequence < end; sequence++)
    on_acknowledged(flow, index, sequence);
  peer->confirmed_mono = flow->link->mono_ns;
  on_consumed(flow, index, get(body + 8, 8));
  free_room(flow);
}

/* What a nak says of evicted messages: those that the peer lacks are to be announced; of those announced before, what it
 * lacks no more it has given up. */
static void settle_evicted(twinlink_flow *flow, uint32_t peer, uint64_t known, const struct range *missing, uint32_t count)
{
  struct receiver *receiver = flow->receivers + peer;
  struct range *copy = flow->link->copy, part;
  bool inside;
  uint32_t copied = receiver->announced.count;
  memcpy(copy, receiver->announced.of, copied * sizeof *copy);
  for (uint32_t i = 0; i < copied; i++) {
    uint64_t at = copy[i].first, end = least(copy[i].end, known);
    while (next_part(missing, count, &at, end, &part, &inside))
      if (!inside && ranges_remove(&receiver->announced, part.first, part.end))
        report_lost(flow, flow->link->peers + peer, part.first, part.end, REASON_EVICTED);
  }
  copied = receiver->doubtful.count;
  memcpy(copy, receiver->doubtful.of, copied * sizeof *copy);
  for (uint32_t i = 0; i < copied; i++) {
    uint64_t at = copy[i].first, end = least(copy[i].end, known);
    while (next_part(missing, count, &at, end, &part, &inside))
      if (!inside && ranges_remove(&receiver->doubtful, part.first, part.end))
        flow->stats.acknowledged += part.end - part.first;
  }
}

/* A peer lacks these: what is kept is retransmitted, unless it has rejected it; what is not is announced. */
static void request(twinlink_flow *flow, uint32_t peer, uint64_t first, uint64_t end)
{
  end = least(end, next_to_send(flow));
  for (uint64_t at = find_position(flow, first); at < flow->sent && entry_at(flow, at)->sequence < end; at++) {
    struct entry *entry = entry_at(flow, at);
    if (!(entry->flags & KEPT))
      continue;
    abandon(flow, EVICTED, first, entry->sequence);
    first = entry->sequence + 1;
    if (entry->rejected & bit(peer))
      continue;
    ranges_add(&flow->requested, entry->sequence, first); /* without room for it, the peer will ask again */
    land(flow, entry);                                    /* it is missing */
  }
  abandon(flow, EVICTED, first, end);
}

static void on_nak(twinlink_flow *flow, struct peer *peer, uint64_t known, const struct range *missing, uint32_t count)
{
  uint32_t index = (uint32_t)(peer - flow->link->peers), next = 0;
  struct receiver *receiver = flow->receivers + index;
  for (uint64_t at = flow->kept_tail; at < flow->sent && entry_at(flow, at)->sequence < known; at++) {
    struct entry *entry = entry_at(flow, at);
    while (next < count && missing[next].end <= entry->sequence)
      next++;
    bool lacks = next < count && missing[next].first <= entry->sequence;
    if (!lacks && settle(flow, entry, index))
      flow->stats.acknowledged++, flow->unanswered = 0;
  }
  settle_evicted(flow, index, known, missing, count);
  for (uint32_t i = 0; i < count; i++)
    request(flow, index, missing[i].first, missing[i].end);
  if (receiver->resuming_ticks > 0 && (known >= receiver->resumed_at || count == MAX_RANGES))
    receiver->resuming_ticks = 0; /* it has said what it could */
  free_room(flow);
}

/* A peer had no room for what it has not acknowledged below `end`: that is not in flight to it. */
static void on_refused(twinlink_flow *flow, struct peer *peer, uint64_t end)
{
  twinlink *link = flow->link;
  struct receiver *receiver = flow->receivers + (peer - link->peers);
  if (peer->state != UP || end > next_to_send(flow))
    return;
  receiver->refused_end = most(receiver->refused_end, end);
  for (uint64_t at = flow->kept_tail; at < flow->sent && entry_at(flow, at)->sequence < end; at++) {
    struct entry *entry = entry_at(flow, at);
    bool awaited = false;
    for (uint32_t i = 0; i < PEERS; i++)
      if ((entry->owed & link->up & bit(i)) && flow->receivers[i].refused_end <= entry->sequence)
        awaited = true;
    if (!awaited)
      land(flow, entry);
  }
}

static void on_feedback(twinlink *link, enum kind kind, struct peer *peer, const char *name, const uint8_t *body,
                        size_t octets)
{
  int ranges = 0;
  bool good = true;
  if (kind == ACK)
    good = octets >= 16 && (octets - 16) % 24 == 0 && octets <= 16 + 24 * MAX_RECORDS;
  else if (kind == ACK_RANGE)
    good = octets == 40 && get(body + 16, 8) < get(body + 24, 8) && get(body + 24, 8) <= MAX_SEQUENCE &&
           get(body + 24, 8) - get(body + 16, 8) <= MAX_ACK_RANGE && get(body + 32, 8) != 0;
  else if (kind == NAK)
    good = (ranges = parse_ranges(link, body, octets, 16)) >= 0;
  else if (kind == REFUSED)
    good = octets == 16 && get(body + 8, 8) <= MAX_SEQUENCE;
  else
    good = octets == 24;
  if (!good) {
    count_malformed(link, kind == ACK ? M_ACK : kind == ACK_RANGE ? M_ACK_RANGE : kind == NAK ? M_NAK
                          : kind == REFUSED ? M_REFUSED : M_FRAGMENT_PROGRESS);
    return;
  }
  if (get(body, 8) != link->config.epoch)
    return; /* it is for another connector */
  twinlink_flow *flow = NULL;
  for (uint32_t f = 0; f < link->config.flow_count; f++)
    if (strcmp(link->flows[f].name, name) == 0)
      flow = link->flows + f;
  if (flow == NULL) {
    count_malformed(link, M_TOPIC);
    return;
  }
  if (peer == NULL || peer->state == REPLACED)
    return;
  if (kind == ACK)
    on_ack(flow, peer, body, octets);
  else if (kind == ACK_RANGE)
    on_ack_range(flow, peer, body);
  else if (kind == NAK)
    on_nak(flow, peer, get(body + 8, 8), link->scratch, (uint32_t)ranges);
  else if (kind == REFUSED)
    on_refused(flow, peer, get(body + 8, 8));
  else
    peer->confirmed_mono = link->mono_ns;
}

/* ---- What is sent: time ---- */

/* A message that only peers without repair have not acknowledged is not in flight after two seconds, and lost later. */
static void presume_lost(twinlink_flow *flow)
{
  twinlink *link = flow->link;
  uint16_t repairs = repairing(link);
  if (repairs == all_peers(link))
    return;
  for (uint64_t at = flow->kept_tail; at < flow->sent; at++) {
    struct entry *entry = entry_at(flow, at);
    uint64_t age = since(link->mono_ns, entry->sent_mono_ns);
    if (!(entry->flags & KEPT) || (entry->owed & (repairs | link->suspended)) || age < 2 * SECOND_NS)
      continue;
    land(flow, entry);
    for (uint32_t i = 0; i < PEERS && age >= 4 * SECOND_NS; i++)
      if (settle(flow, entry, i))
        report_lost(flow, link->peers + i, entry->sequence, entry->sequence + 1, REASON_NOT_ACKED);
  }
  free_room(flow);
}

static uint64_t oldest(const twinlink_flow *flow, uint32_t flags)
{
  for (uint64_t at = flow->kept_tail; at < flow->sent; at++)
    if (entry_at(flow, at)->flags & flags)
      return entry_at(flow, at)->sequence;
  return UINT64_MAX;
}

/* Probes when something that is awaited has not moved since the last tick ("Abandonment and probes"). */
static void tick_flow(twinlink_flow *flow)
{
  twinlink *link = flow->link;
  uint64_t none = UINT64_MAX, consumed = consumed_by_all(flow);
  uint64_t awaited[5] = {oldest(flow, IN_FLIGHT), none, none, none, none};
  if (flow->sent < flow->taken && unconsumed(flow) > UNBLOCKED_OCTETS)
    awaited[1] = consumed;
  for (uint32_t i = 0; i < PEERS; i++) {
    struct receiver *receiver = flow->receivers + i;
    if (!(link->up & bit(i)))
      continue;
    if (receiver->resuming_ticks > 0 || receiver->announced.count > 0 || receiver->doubtful.count > 0)
      awaited[2] = 0;
    if (receiver->refused_end > 0)
      awaited[4] = oldest(flow, KEPT);
    if (receiver->resuming_ticks > 0)
      receiver->resuming_ticks--;
  }
  if (consumed < flow->abandoned_end)
    awaited[3] = consumed;
  for (int i = 0; i < 5; i++)
    if (awaited[i] != none && awaited[i] == flow->awaited[i])
      flow->probe = true;
  memcpy(flow->awaited, awaited, sizeof awaited);
  bool stalled = consumed < next_to_send(flow) && consumed == flow->stalled_at;
  flow->stalled_ticks = stalled ? flow->stalled_ticks + 1 : 0;
  flow->stalled_at = consumed;
  if (flow->stalled_ticks >= LOSS_TICKS)
    flow->stalled_ticks = 0, flow->probe = true;
  flow->unanswered = 0;
  presume_lost(flow);
}

/* ---- What is sent: frames ---- */

/* The ranges of a set that are below what has been sent already; what is not, is announced behind that. */
static size_t put_announced(twinlink_flow *flow, struct ranges *set, uint8_t *to)
{
  uint32_t count = 0;
  while (count < set->count && count < MAX_RANGES && set->of[count].end <= next_to_send(flow)) {
    put(to + 16 * (size_t)count, set->of[count].first, 8), put(to + 16 * (size_t)count + 8, set->of[count].end, 8);
    flow->abandoned_end = most(flow->abandoned_end, set->of[count].end);
    count++;
  }
  memmove(set->of, set->of + count, (set->count - count) * sizeof *set->of);
  set->count -= count;
  return 16 * (size_t)count;
}

static bool poll_abandoned(twinlink_flow *flow, struct twinlink_frame *frame)
{
  twinlink *link = flow->link;
  uint8_t *out = link->out;
  enum abandon_reason reason = EVICTED;
  size_t octets = put_announced(flow, &flow->abandoned[EVICTED], out + HEADER + 8);
  if (octets == 0 && (octets = put_announced(flow, &flow->abandoned[DROPPED], out + HEADER + 8)) > 0)
    reason = DROPPED;
  if (octets == 0) {
    if (!flow->probe)
      return false;
    flow->probe = false;
    if (!repairing(link))
      return false;
  }
  put(out + HEADER, reason, 8);
  put_header(out, ABANDONED, 8 + octets, link->config.epoch, next_to_send(flow), link->now_ns);
  *frame = (struct twinlink_frame){flow->topic, strlen(flow->topic), out, HEADER + 8 + octets};
  return true;
}

/* Whether so many octets more may be in flight; one message always may. */
static bool may_fly(const twinlink *link, uint64_t octets)
{
  return link->in_flight == 0 || link->in_flight + octets + FRAMING_OCTETS <= link->config.in_flight_octets;
}

/* Whether a lower message that was retransmitted is in flight: then the lowest requested one can wait for its ack. */
static bool awaits_retransmitted(const twinlink_flow *flow, uint64_t sequence)
{
  if (flow->resent_in_flight == 0)
    return false;
  for (uint64_t at = flow->kept_tail; at < flow->sent && entry_at(flow, at)->sequence < sequence; at++)
    if ((entry_at(flow, at)->flags & (IN_FLIGHT | RESENT)) == (IN_FLIGHT | RESENT))
      return true;
  return false;
}

static void fly(twinlink_flow *flow, struct entry *entry, uint32_t flags, struct twinlink_frame *frame)
{
  uint8_t *header = flow->ring + entry->offset % flow->ring_octets;
  land(flow, entry);
  entry->flags |= IN_FLIGHT | flags;
  entry->sent_mono_ns = flow->link->mono_ns;
  flow->link->in_flight += entry->octets + FRAMING_OCTETS;
  flow->resent_in_flight += (entry->flags & RESENT) != 0;
  header[3] = flags & RESENT ? RETRANSMIT : DATA;
  *frame = (struct twinlink_frame){flow->topic, strlen(flow->topic), header, HEADER + entry->octets};
}

static bool poll_requested(twinlink_flow *flow, struct twinlink_frame *frame)
{
  struct ranges *requested = &flow->requested;
  while (requested->count > 0) {
    uint64_t sequence = requested->of[0].first;
    struct entry *entry = find_kept(flow, sequence);
    bool wanted = entry != NULL && (entry->owed & flow->link->up);
    if (wanted && (flow->unanswered >= UNANSWERED_OCTETS ||
                   (!may_fly(flow->link, entry->octets) && awaits_retransmitted(flow, sequence))))
      return false;
    ranges_remove(requested, sequence, sequence + 1);
    if (!wanted)
      continue;
    flow->unanswered += entry->octets + FRAMING_OCTETS;
    flow->stats.retransmitted++;
    fly(flow, entry, RESENT, frame);
    return true;
  }
  return false;
}

/* Passes what is not kept, and where others are up, what only peers that are down are to get: they will request it. */
static struct entry *next_unsent(twinlink_flow *flow)
{
  for (; flow->sent < flow->taken; flow->sent++) {
    struct entry *entry = entry_at(flow, flow->sent);
    if ((entry->flags & KEPT) && (entry->owed & flow->link->up))
      return entry;
    entry->before_octets = flow->sent_octets;
  }
  return NULL;
}

static bool window_is_open(const twinlink_flow *flow, uint64_t octets)
{
  uint64_t now = unconsumed(flow), window = flow->window_octets;
  for (uint32_t i = 0; i < PEERS; i++)
    if ((flow->link->up & bit(i)) && flow->receivers[i].refused_end > 0)
      window = least(window, UNBLOCKED_OCTETS); /* until it has consumed what it had room for */
  return now + octets <= window || now <= UNBLOCKED_OCTETS;
}

static bool poll_new(twinlink_flow *flow, struct twinlink_frame *frame)
{
  struct entry *entry = next_unsent(flow);
  if (entry == NULL || !may_fly(flow->link, entry->octets) || !window_is_open(flow, entry->octets))
    return false;
  entry->before_octets = flow->sent_octets;
  flow->sent_octets += entry->octets;
  flow->stats.sent_octets += entry->octets;
  flow->sent++;
  fly(flow, entry, 0, frame);
  return true;
}

static bool poll_flow(twinlink_flow *flow, struct twinlink_frame *frame)
{
  take_messages(flow);
  if (!flow->link->up)
    return false;
  return poll_abandoned(flow, frame) || poll_requested(flow, frame) ||
         (flow->requested.count == 0 && poll_new(flow, frame));
}

/* ---- What is received ---- */

/* Adds a record to the ack that was queued last, if that is for the same flow and peer. */
static bool extend_ack(twinlink *link, const char *flow, uint64_t epoch, uint64_t consumed, const uint8_t *record)
{
  if (link->last_ack == SIZE_MAX || link->last_ack < link->outbox_first || link->outbox_first == link->outbox_end ||
      link->outbox_end + 24 > OUTBOX_OCTETS)
    return false;
  uint8_t *at = link->outbox + link->last_ack;
  size_t topic = (size_t)get(at, 2), size = (size_t)get(at + 2, 2);
  uint8_t *frame = at + 4 + topic;
  if (frame[3] != ACK || topic != 4 + strlen(flow) || memcmp(at + 8, flow, topic - 4) != 0 ||
      get(frame + HEADER, 8) != epoch || size + 24 > HEADER + 16 + 24 * MAX_RECORDS)
    return false;
  memcpy(frame + size, record, 24);
  put(at + 2, size + 24, 2), put(frame + 4, size + 24 - HEADER, 4), put(frame + HEADER + 8, consumed, 8);
  link->outbox_end += 24;
  return true;
}

/* Acknowledges a message; T2 = 0 rejects it.  Without one, `sequence` UINT64_MAX, it says what is consumed. */
static void send_ack(twinlink *link, const char *flow, uint64_t epoch, uint64_t consumed, uint64_t sequence,
                     uint64_t t1_ns, uint64_t t2_ns)
{
  uint8_t record[24];
  put(record, sequence, 8), put(record + 8, t1_ns, 8), put(record + 16, t2_ns, 8);
  bool empty = sequence == UINT64_MAX;
  if (!empty && extend_ack(link, flow, epoch, consumed, record))
    return;
  uint8_t *body = control(link, ACK, flow, link->acks_sent, empty ? 16 : 40);
  if (body == NULL)
    return;
  link->acks_sent++;
  put(body, epoch, 8), put(body + 8, consumed, 8);
  if (!empty)
    memcpy(body + 16, record, 24);
}

static void send_nak(twinlink *link, const char *flow, uint64_t epoch, uint64_t known, const struct range *of,
                     uint32_t count)
{
  uint8_t *body = control(link, NAK, flow, 0, 16 + 16 * (size_t)count);
  if (body == NULL)
    return;
  put(body, epoch, 8), put(body + 8, known, 8);
  for (uint32_t i = 0; i < count; i++)
    put(body + 16 + 16 * (size_t)i, of[i].first, 8), put(body + 24 + 16 * (size_t)i, of[i].end, 8);
}

static void send_progress(twinlink *link, const char *flow, uint64_t epoch, uint64_t sent_ns, uint64_t octets)
{
  uint8_t *body = control(link, FRAGMENT_PROGRESS, flow, link->acks_sent, 24);
  if (body == NULL)
    return;
  link->acks_sent++;
  put(body, epoch, 8), put(body + 8, sent_ns, 8), put(body + 16, octets, 8);
}

static void send_refused(twinlink *link, const struct peer *peer)
{
  uint8_t *body = control(link, REFUSED, link->receive_flow, 0, 16);
  if (body != NULL)
    put(body, peer->epoch, 8), put(body + 8, most(peer->stream.refused_end, peer->stream.next), 8);
}

/* All that is missing, and what was rejected, as the ack that said so may be lost. */
static void send_full_nak(twinlink *link, const struct peer *peer)
{
  const struct stream *stream = &peer->stream;
  struct ranges missing = {link->scratch, 0, MAX_RANGES};
  for (uint32_t i = 0; i < stream->rejected.count; i++)
    ranges_add(&missing, stream->rejected.of[i].first, least(stream->rejected.of[i].end, stream->next));
  for (uint64_t one = stream->next_due; one < stream->next; one++)
    if (stream->held[one % WINDOW] < 0 && !ranges_have(&stream->given_up, one) && !ranges_have(&stream->conflated, one))
      ranges_add(&missing, one, one + 1);
  send_nak(link, link->receive_flow, peer->epoch, stream->next, missing.of, missing.count);
}

static void begin_stream(struct peer *peer, uint64_t sequence)
{
  struct stream *stream = &peer->stream;
  stream->begun = true;
  stream->next_due = stream->next = least(peer->start, sequence);
  stream->refused_end = 0;
  stream->given_up.count = stream->conflated.count = stream->rejected.count = 0;
  for (int i = 0; i < WINDOW; i++)
    stream->held[i] = -1;
}

static void deliver(twinlink *link, struct peer *peer, uint64_t sent_ns, const uint8_t *payload, size_t octets)
{
  struct twinlink_message message = {peer->epoch, peer->stream.next_due, sent_ns, payload, octets};
  link->stats.received++;
  peer->stream.next_due++;
  if (link->config.on_message != NULL)
    link->config.on_message(link->config.context, &message);
}

static void deliver_held(twinlink *link, struct peer *peer)
{
  int16_t *index = &peer->stream.held[peer->stream.next_due % WINDOW];
  struct held *held = link->held + *index;
  *index = -1;
  deliver(link, peer, held->sent_ns, held->payload, held->octets);
  held->used = false;
}

static void report_gap(twinlink *link, const struct peer *peer, uint64_t first, uint64_t end)
{
  link->stats.gaps += end - first;
  report(link, (struct twinlink_event){TWINLINK_GAP, peer->epoch, peer->node, link->receive_flow, first, end, ""});
}

/* The first from the next one on that is held; `end` if none is below that. */
static uint64_t next_held(const struct stream *stream, uint64_t end)
{
  for (uint64_t one = stream->next_due; one < stream->next && one < end; one++)
    if (stream->held[one % WINDOW] >= 0)
      return one;
  return end;
}

/* Delivers what is due, and goes on behind what was given up. */
static void advance(twinlink *link, struct peer *peer)
{
  struct stream *stream = &peer->stream;
  for (;;) {
    if (stream->next_due < stream->next && stream->held[stream->next_due % WINDOW] >= 0) {
      deliver_held(link, peer);
      continue;
    }
    const struct range *lost = range_with(stream->given_up.of, stream->given_up.count, stream->next_due);
    const struct range *silent = range_with(stream->conflated.of, stream->conflated.count, stream->next_due);
    if (lost == NULL && silent == NULL)
      return;
    uint64_t first = stream->next_due, end = next_held(stream, lost != NULL ? lost->end : silent->end);
    stream->next_due = end, stream->next = most(stream->next, end);
    if (lost != NULL)
      report_gap(link, peer, first, end);
  }
}

/* Requests what was refused, as far as there is room now. */
static void request_refused(twinlink *link, struct peer *peer)
{
  struct stream *stream = &peer->stream;
  struct range found = {stream->next, least(stream->refused_end, stream->next_due + WINDOW)};
  if (found.first >= found.end)
    return;
  stream->next = found.end;
  send_nak(link, link->receive_flow, peer->epoch, stream->next_due, &found, 1);
}

static void remember(struct ranges *set, uint64_t first, uint64_t end, uint64_t next_due)
{
  if (!ranges_add(set, first, end) && set->of[0].end <= next_due) {
    ranges_remove(set, 0, set->of[0].end);
    ranges_add(set, first, end);
  }
}

static bool hold(twinlink *link, struct stream *stream, uint64_t sequence, uint64_t sent_ns, const uint8_t *payload,
                 size_t octets)
{
  for (uint32_t i = 0; i < link->config.receive_slots; i++) {
    struct held *held = link->held + i;
    if (held->used)
      continue;
    *held = (struct held){true, (uint32_t)octets, sent_ns, held->payload};
    if (octets > 0)
      memcpy(held->payload, payload, octets);
    stream->held[sequence % WINDOW] = (int16_t)i;
    return true;
  }
  return false;
}

/* A message on the receive flow, at or above the next one that is due; false: it is not taken, and not acknowledged. */
static bool take_in(twinlink *link, struct peer *peer, uint64_t sequence, uint64_t sent_ns, const uint8_t *payload,
                    size_t octets)
{
  struct stream *stream = &peer->stream;
  if (sequence >= stream->next_due + WINDOW) {
    stream->refused_end = most(stream->refused_end, sequence + 1);
    send_refused(link, peer);
    return false;
  }
  if (sequence >= stream->next) {
    struct range found = {stream->next, sequence};
    stream->next = sequence + 1;
    if (found.first < found.end)
      send_nak(link, link->receive_flow, peer->epoch, stream->next_due, &found, 1);
  } else if (stream->held[sequence % WINDOW] >= 0) {
    link->stats.duplicates++;
    return true;
  } else if (ranges_have(&stream->given_up, sequence) || ranges_have(&stream->conflated, sequence)) {
    return false;
  }
  if (sequence == stream->next_due) {
    deliver(link, peer, sent_ns, payload, octets);
    advance(link, peer);
  } else if (!hold(link, stream, sequence, sent_ns, payload, octets)) {
    send_refused(link, peer);
    return false;
  }
  return true;
}

/* A message on a flow that this node does not take, or from a peer that would not repair it. */
static struct unclaimed *unclaimed(twinlink *link, uint64_t epoch, const char *flow)
{
  for (int i = 0; i < UNCLAIMED; i++)
    if (link->unclaimed[i].epoch == epoch && strcmp(link->unclaimed[i].flow, flow) == 0)
      return link->unclaimed + i;
  struct unclaimed *one = link->unclaimed + link->unclaimed_turn++ % UNCLAIMED;
  one->epoch = epoch, one->next = 0;
  memcpy(one->flow, flow, strlen(flow) + 1);
  return one;
}

static void reject_unclaimed(twinlink *link, uint64_t epoch, const char *flow, uint64_t sequence, uint64_t t1_ns)
{
  struct unclaimed *one = unclaimed(link, epoch, flow);
  one->next = most(one->next, sequence + 1);
  send_ack(link, flow, epoch, one->next, sequence, t1_ns, 0);
}

static bool takes(const twinlink *link, const struct peer *peer, const char *flow)
{
  return link->receive_flow[0] != 0 && strcmp(flow, link->receive_flow) == 0 && peer->repairs_flow;
}

/* Too long a message is rejected, and the flow goes on behind it. */
static void reject(twinlink *link, struct peer *peer, uint64_t sequence, uint64_t t1_ns)
{
  struct stream *stream = &peer->stream;
  remember(&stream->rejected, sequence, sequence + 1, stream->next_due);
  if (sequence >= stream->next_due && sequence < stream->next_due + WINDOW) {
    if (sequence > stream->next)
      send_nak(link, link->receive_flow, peer->epoch, stream->next_due, &(struct range){stream->next, sequence}, 1);
    stream->next = most(stream->next, sequence + 1);
    remember(&stream->given_up, sequence, sequence + 1, stream->next_due);
    advance(link, peer);
  }
  send_ack(link, link->receive_flow, peer->epoch, stream->next_due, sequence, t1_ns, 0);
}

static void on_message(twinlink *link, struct peer *peer, const char *flow, bool again, uint64_t sequence,
                       uint64_t sent_ns, const uint8_t *payload, size_t octets)
{
  struct stream *stream = &peer->stream;
  if (!takes(link, peer, flow)) {
    reject_unclaimed(link, peer->epoch, flow, sequence, sent_ns);
    return;
  }
  if (!stream->begun) {
    if (again)
      return; /* it has sent nothing on this flow */
    begin_stream(peer, sequence);
  }
  if (octets > link->config.receive_max_octets || ranges_have(&stream->rejected, sequence)) {
    reject(link, peer, sequence, sent_ns);
    return;
  }
  if (sequence < stream->next_due) {
    if (ranges_have(&stream->given_up, sequence) || ranges_have(&stream->conflated, sequence))
      return; /* its sender counts it as lost, and so does this node */
    link->stats.duplicates++;
  } else if (!take_in(link, peer, sequence, sent_ns, payload, octets)) {
    return;
  }
  send_ack(link, flow, peer->epoch, stream->next_due, sequence, sent_ns, link->now_ns);
  request_refused(link, peer);
}

static void on_abandoned(twinlink *link, struct peer *peer, const char *flow, uint64_t next, uint64_t reason,
                         const struct range *ranges, uint32_t count)
{
  struct stream *stream = &peer->stream;
  if (!takes(link, peer, flow)) {
    struct unclaimed *one = unclaimed(link, peer->epoch, flow);
    if (count > 0)
      one->next = most(one->next, next);
    else if (next > 0) /* have it send again what it still keeps, to be rejected */
      send_nak(link, flow, peer->epoch, 0, &(struct range){0, next}, 1);
    send_ack(link, flow, peer->epoch, one->next, UINT64_MAX, 0, 0);
    return;
  }
  if (!stream->begun)
    begin_stream(peer, next);
  uint64_t end = count > 0 ? most(next, ranges[count - 1].end) : next, before = stream->next;
  for (uint32_t i = 0; i < count; i++) {
    remember(reason == CONFLATED ? &stream->conflated : &stream->given_up, ranges[i].first, ranges[i].end, stream->next_due);
    ranges_remove(&stream->rejected, ranges[i].first, ranges[i].end);
  }
  stream->next = most(stream->next, least(end, stream->next_due + WINDOW));
  advance(link, peer);
  stream->next = most(stream->next, least(end, stream->next_due + WINDOW));
  stream->refused_end = most(stream->refused_end, end);
  bool newly = false;
  for (uint64_t one = most(before, stream->next_due); one < stream->next; one++)
    newly = newly || !(ranges_have(&stream->given_up, one) || ranges_have(&stream->conflated, one));
  if (count == 0 || newly)
    send_full_nak(link, peer);
  if (count == 0)
    send_ack(link, flow, peer->epoch, stream->next_due, UINT64_MAX, 0, 0);
}

static void start_stream(twinlink *link, struct peer *peer, uint64_t start)
{
  struct stream *stream = &peer->stream;
  peer->start = start;
  if (!stream->begun || stream->next_due >= start)
    return;
  remember(&stream->conflated, stream->next_due, next_held(stream, least(start, stream->next)), stream->next_due);
  advance(link, peer);
}

/* The session will not return: what is missing is a gap, and what is held behind that is delivered. */
static void end_stream(twinlink *link, struct peer *peer)
{
  struct stream *stream = &peer->stream;
  if (!stream->begun)
    return;
  remember(&stream->given_up, stream->next_due, most(stream->next, stream->refused_end), stream->next_due);
  advance(link, peer);
  for (; stream->next_due < stream->next; stream->next_due++) /* without room to remember them */
    if (stream->held[stream->next_due % WINDOW] >= 0)
      deliver_held(link, peer), stream->next_due--;
    else
      report_gap(link, peer, stream->next_due, stream->next_due + 1);
  stream->begun = false;
}

/* ---- What is received: bundles and fragments ---- */

static bool is_bundle(const uint8_t *body, size_t octets, uint64_t epoch)
{
  uint32_t count = 0;
  for (size_t at = 0; at < octets; count++) {
    const uint8_t *one = body + at;
    if (octets - at < HEADER || count == MAX_BUNDLED || one[0] != 'T' || one[1] != 'L' || one[2] != 1 ||
        (one[3] != DATA && one[3] != RETRANSMIT) || get(one + 4, 4) > octets - at - HEADER ||
        get(one + 8, 8) != epoch || get(one + 16, 8) > MAX_SEQUENCE)
      return false;
    at += HEADER + (size_t)get(one + 4, 4);
  }
  return true;
}

static void on_bundle(twinlink *link, struct peer *peer, const char *flow, const uint8_t *body, size_t octets)
{
  for (size_t at = 0; at < octets;) {
    const uint8_t *one = body + at;
    size_t payload = (size_t)get(one + 4, 4);
    on_message(link, peer, flow, one[3] == RETRANSMIT, get(one + 16, 8), get(one + 24, 8), one + HEADER, payload);
    at += HEADER + payload;
  }
}

/* The first piece has the header of the whole; false: it is none. */
static bool begins_whole(const uint8_t *piece, size_t octets, uint64_t epoch, uint64_t sent_ns)
{
  return octets >= HEADER && piece[0] == 'T' && piece[1] == 'L' && piece[2] == 1 && piece[3] >= DATA &&
         piece[3] <= REFUSED && piece[3] != FRAGMENT && get(piece + 8, 8) == epoch && get(piece + 24, 8) == sent_ns &&
         get(piece + 4, 4) + HEADER > octets && get(piece + 16, 8) <= MAX_SEQUENCE;
}

/* A whole that is longer than this node takes is a gap, as its hellos say what it takes. */
static void on_first_piece(twinlink *link, struct peer *peer, const char *flow, const uint8_t *piece, uint64_t sent_ns)
{
  uint64_t whole = HEADER + get(piece + 4, 4), sequence = get(piece + 16, 8);
  struct reassembly *at = &link->reassembly;
  bool again = at->epoch == peer->epoch && at->sent_ns == sent_ns;
  if (!takes(link, peer, flow))
    reject_unclaimed(link, peer->epoch, flow, sequence, sent_ns);
  else if (whole - HEADER > link->config.receive_max_octets)
    on_message(link, peer, flow, false, sequence, sent_ns, NULL, (size_t)(whole - HEADER));
  else if (!again)
    *at = (struct reassembly){peer->epoch, sent_ns, 0, (size_t)whole};
}

static void on_fragment(twinlink *link, struct peer *peer, const char *flow, uint64_t from, uint64_t sent_ns,
                        const uint8_t *piece, size_t octets)
{
  struct reassembly *at = &link->reassembly;
  if (octets == 0 || (from == 0 && !begins_whole(piece, octets, peer->epoch, sent_ns))) {
    count_malformed(link, M_FRAGMENT);
    return;
  }
  if (from == 0)
    on_first_piece(link, peer, flow, piece, sent_ns);
  bool continues = takes(link, peer, flow) && at->epoch == peer->epoch && at->sent_ns == sent_ns;
  if (continues && from == at->octets && octets <= at->whole - at->octets) {
    memcpy(link->whole + at->octets, piece, octets);
    at->octets += octets;
  }
  if (!continues || at->octets < at->whole) {
    send_progress(link, flow, peer->epoch, sent_ns, continues ? at->octets : 0);
    return;
  }
  const uint8_t *whole = link->whole;
  at->epoch = 0;
  if (whole[3] == DATA || whole[3] == RETRANSMIT)
    on_message(link, peer, flow, whole[3] == RETRANSMIT, get(whole + 16, 8), sent_ns, whole + HEADER, at->whole - HEADER);
}

/* ---- The calls of the link thread ---- */

static int malformed_header(const uint8_t *frame, size_t octets)
{
  if (octets < HEADER)
    return M_TRUNCATED;
  if (frame[0] != 'T' || frame[1] != 'L')
    return M_MAGIC;
  if (frame[2] != 1)
    return M_VERSION;
  if (frame[3] < DATA || frame[3] > REFUSED)
    return M_KIND;
  return get(frame + 4, 4) != octets - HEADER ? M_LENGTH : -1;
}

static void on_traffic(twinlink *link, struct peer *peer, const char *flow, const uint8_t *frame, size_t octets)
{
  const uint8_t *body = frame + HEADER;
  enum kind kind = frame[3];
  uint64_t epoch = get(frame + 8, 8), sequence = get(frame + 16, 8), sent_ns = get(frame + 24, 8);
  int ranges = 0, wrong = -1;
  if (kind == ABANDONED && ((ranges = parse_ranges(link, body, octets, 8)) < 0 || get(body, 8) > CONFLATED))
    wrong = M_ABANDONED;
  else if (kind == BUNDLE && !is_bundle(body, octets, epoch))
    wrong = M_BUNDLE;
  else if (kind != BUNDLE && sequence > MAX_SEQUENCE)
    wrong = kind == FRAGMENT ? M_FRAGMENT : M_SEQUENCE;
  if (wrong >= 0)
    count_malformed(link, (enum malformed)wrong);
  else if (peer == NULL || peer->state == REPLACED)
    return;
  else if (kind == ABANDONED)
    on_abandoned(link, peer, flow, sequence, get(body, 8), link->scratch, (uint32_t)ranges);
  else if (kind == BUNDLE)
    on_bundle(link, peer, flow, body, octets);
  else if (kind == FRAGMENT)
    on_fragment(link, peer, flow, sequence, sent_ns, body, octets);
  else
    on_message(link, peer, flow, kind == RETRANSMIT, sequence, sent_ns, body, octets);
}

void twinlink_receive(twinlink *link, const char *topic, size_t topic_octets, const void *octets, size_t size,
                      uint64_t mono_ns, uint64_t now_ns)
{
  const uint8_t *frame = octets;
  char flow[TWINLINK_NAME_OCTETS];
  link->mono_ns = mono_ns, link->now_ns = now_ns;
  int wrong = malformed_header(frame, size);
  if (wrong >= 0 || link->closed) {
    if (wrong >= 0)
      count_malformed(link, (enum malformed)wrong);
    return;
  }
  enum kind kind = frame[3];
  uint64_t epoch = get(frame + 8, 8);
  struct peer *peer = find_peer(link, epoch);
  if (peer != NULL)
    peer->heard_mono = mono_ns;
  bool linked = topic_octets == 13 && memcmp(topic, "traffic/_link", 13) == 0;
  bool feedback = kind == ACK || kind == NAK || kind == ACK_RANGE || kind == REFUSED || kind == FRAGMENT_PROGRESS;
  if (epoch == link->config.epoch)
    count_malformed(link, M_REFLECTED);
  else if (kind == HELLO && linked)
    on_hello(link, epoch, get(frame + 16, 8), get(frame + 24, 8), frame + HEADER, size - HEADER);
  else if (kind == BYE && linked)
    on_bye(link, epoch);
  else if (kind == HELLO || kind == BYE || !flow_of(topic, topic_octets, feedback ? "ack/" : "traffic/", flow))
    count_malformed(link, M_TOPIC);
  else if (feedback)
    on_feedback(link, kind, peer, flow, frame + HEADER, size - HEADER);
  else
    on_traffic(link, peer, flow, frame, size - HEADER);
}

static uint64_t heartbeat_due(const twinlink *link)
{
  return link->heartbeat_mono + (link->up && !any_suspect(link) ? HELLO_INTERVAL_NS : SEARCH_INTERVAL_NS);
}

void twinlink_on_time(twinlink *link, uint64_t mono_ns, uint64_t now_ns, uint64_t drained_mono_ns)
{
  link->mono_ns = mono_ns, link->now_ns = now_ns, link->drained_mono = drained_mono_ns;
  if (link->closed)
    return;
  for (uint32_t f = 0; f < link->config.flow_count; f++)
    take_messages(link->flows + f);
  if (mono_ns >= link->tick_mono + TICK_NS) {
    expire(link);
    link->hello_due = link->hello_due || link->answer_due;
    link->answer_due = false;
    link->tick_mono = mono_ns;
  }
  if (mono_ns >= heartbeat_due(link)) {
    link->heartbeat_mono = mono_ns;
    link->hello_due = true;
  }
  if (mono_ns < link->flow_tick_mono + FLOW_TICK_NS)
    return;
  link->flow_tick_mono = mono_ns;
  for (uint32_t f = 0; f < link->config.flow_count; f++)
    tick_flow(link->flows + f);
}

uint64_t twinlink_next_timeout(const twinlink *link)
{
  return least(least(link->tick_mono + TICK_NS, link->flow_tick_mono + FLOW_TICK_NS), heartbeat_due(link));
}

static bool poll_control(twinlink *link, struct twinlink_frame *frame)
{
  if (link->outbox_first == link->outbox_end)
    return false;
  uint8_t *at = link->outbox + link->outbox_first;
  size_t topic = (size_t)get(at, 2), size = (size_t)get(at + 2, 2);
  link->outbox_first += 4 + topic + size;
  put(at + 4 + topic + 24, link->now_ns, 8); /* T3 of an ack */
  *frame = (struct twinlink_frame){(const char *)at + 4, topic, at + 4 + topic, size};
  return true;
}

static bool poll_link(twinlink *link, struct twinlink_frame *frame)
{
  static const char topic[] = "traffic/_link";
  size_t size = HEADER;
  if (link->hello_due && !link->closed)
    size = put_hello(link, link->out, OUT_OCTETS);
  else if (link->bye_due)
    put_header(link->out, BYE, 0, link->config.epoch, 0, link->now_ns);
  else
    return false;
  link->hello_due = link->bye_due = false;
  *frame = (struct twinlink_frame){topic, sizeof topic - 1, link->out, size};
  return true;
}

bool twinlink_poll_transmit(twinlink *link, struct twinlink_frame *frame, uint64_t mono_ns, uint64_t now_ns)
{
  link->mono_ns = mono_ns, link->now_ns = now_ns;
  if (poll_control(link, frame) || (!link->closed && poll_link(link, frame)))
    return true;
  for (uint32_t f = 0; f < link->config.flow_count; f++) {
    twinlink_flow *flow = link->flows + (link->turn + f) % link->config.flow_count;
    if (link->closed ? link->up && poll_abandoned(flow, frame) : poll_flow(flow, frame)) {
      link->turn = (link->turn + f + 1) % link->config.flow_count;
      return true;
    }
  }
  return link->closed && poll_link(link, frame);
}

void twinlink_close(twinlink *link, uint64_t mono_ns, uint64_t now_ns)
{
  link->mono_ns = mono_ns, link->now_ns = now_ns;
  if (link->closed)
    return;
  for (uint32_t f = 0; f < link->config.flow_count; f++) {
    twinlink_flow *flow = link->flows + f;
    take_messages(flow);
    flow->sent = flow->taken;
    for (uint64_t at = flow->kept_tail; at < flow->taken; at++)
      if (entry_at(flow, at)->flags & KEPT)
        abandon(flow, EVICTED, entry_at(flow, at)->sequence, entry_at(flow, at)->sequence + 1);
    flow->probe = true; /* without ranges it is the end of what was sent */
  }
  for (uint32_t i = 0; i < PEERS; i++)
    if (link->peers[i].state != FREE)
      lose_all(link, i, REASON_CLOSED, -1);
  link->closed = link->bye_due = true;
}

void twinlink_get_stats(const twinlink *link, struct twinlink_stats *stats)
{
  *stats = link->stats;
  stats->in_flight_octets = link->in_flight;
  stats->peers_up = 0;
  for (uint32_t i = 0; i < PEERS; i++)
    stats->peers_up += (link->up & bit(i)) != 0;
}

void twinlink_get_flow_stats(const twinlink_flow *flow, struct twinlink_flow_stats *stats)
{
  *stats = flow->stats;
  stats->sent = flow->next_sequence;
  for (uint64_t at = flow->kept_tail; at < flow->taken; at++)
    stats->outstanding += (entry_at(flow, at)->flags & KEPT) != 0;
  for (uint32_t i = 0; i < PEERS; i++)
    for (uint32_t k = 0; k < 2; k++) {
      const struct ranges *set = k ? &flow->receivers[i].announced : &flow->receivers[i].doubtful;
      for (uint32_t r = 0; r < set->count; r++)
        stats->unconfirmed += set->of[r].end - set->of[r].first;
    }
}

/* ---- Making a node ---- */

struct carving { uint8_t *base; size_t at; };

/* So many octets more of the caller's memory; NULL while they are only counted. */
static void *carve(struct carving *carving, size_t octets)
{
  size_t at = carving->at;
  carving->at = at + ((octets + ALIGN - 1) & ~(size_t)(ALIGN - 1));
  return carving->base != NULL ? carving->base + at : NULL;
}

static void carve_ranges(struct carving *carving, struct ranges *set, uint32_t capacity)
{
  struct range *of = carve(carving, capacity * sizeof *of);
  if (of != NULL)
    *set = (struct ranges){of, 0, capacity};
}

static void carve_flow(struct carving *carving, twinlink_flow *flow, const struct twinlink_flow_config *config)
{
  void *ring = carve(carving, config->ring_octets), *entries = carve(carving, config->messages * sizeof(struct entry));
  struct receiver *receivers = carve(carving, PEERS * sizeof(struct receiver));
  if (ring != NULL)
    flow->ring = ring, flow->entries = entries, flow->receivers = receivers;
  struct twinlink_flow counted;
  struct receiver one;
  twinlink_flow *at = ring != NULL ? flow : &counted;
  carve_ranges(carving, &at->requested, MAX_RANGES);
  carve_ranges(carving, &at->abandoned[EVICTED], MAX_RANGES);
  carve_ranges(carving, &at->abandoned[DROPPED], MAX_RANGES);
  for (uint32_t i = 0; i < PEERS; i++) {
    struct receiver *receiver = ring != NULL ? receivers + i : &one;
    carve_ranges(carving, &receiver->doubtful, PEER_RANGES);
    carve_ranges(carving, &receiver->announced, PEER_RANGES);
  }
}

/* Lays out the caller's memory; with a base of NULL it only counts. */
static void lay_out(struct carving *carving, const struct twinlink_config *config, uint32_t receive_max)
{
  struct twinlink *link = carve(carving, sizeof *link), counted;
  struct twinlink *at = link != NULL ? link : &counted;
  struct peer *peers = carve(carving, PEERS * sizeof *peers), one;
  twinlink_flow *flows = carve(carving, config->flow_count * sizeof *flows);
  struct held *held = carve(carving, config->receive_slots * sizeof *held);
  at->peers = peers, at->flows = flows, at->held = held;
  at->outbox = carve(carving, OUTBOX_OCTETS);
  at->out = carve(carving, OUT_OCTETS);
  at->whole = carve(carving, HEADER + receive_max);
  for (uint32_t i = 0; i < config->receive_slots; i++) {
    uint8_t *payload = carve(carving, receive_max);
    if (link != NULL)
      held[i].payload = payload;
  }
  for (uint32_t i = 0; i < PEERS; i++) {
    struct stream *stream = link != NULL ? &peers[i].stream : &one.stream;
    carve_ranges(carving, &stream->given_up, PEER_RANGES);
    carve_ranges(carving, &stream->conflated, PEER_RANGES);
    carve_ranges(carving, &stream->rejected, PEER_RANGES);
  }
  for (uint32_t f = 0; f < config->flow_count; f++)
    carve_flow(carving, link != NULL ? flows + f : NULL, config->flows + f);
}

static const uint64_t MAX_RING_OCTETS = SIZE_MAX / 2 / FLOWS;

static uint32_t receive_max(const struct twinlink_config *config)
{
  return config->receive_max_octets != 0 ? config->receive_max_octets : 16499; /* a decision with its signature */
}

static const char *wrong_in_flow(const struct twinlink_flow_config *flow)
{
  char name[TWINLINK_NAME_OCTETS];
  bool power = (flow->messages & (flow->messages - 1)) == 0;
  return flow->name == NULL || !flow_of(flow->name, strlen(flow->name), "", name)       ? "flows.name"
         : flow->ring_octets < 256 || flow->ring_octets > MAX_RING_OCTETS               ? "flows.ring_octets"
         : flow->messages < 16 || flow->messages > 131072 || !power                     ? "flows.messages"
         : flow->reserve_octets >= flow->ring_octets                                    ? "flows.reserve_octets"
                                                                                        : NULL;
}

/* A name that JSON needs not escape, and that every node takes: printable ASCII, however `char` is signed. */
static bool is_node_name(const char *node)
{
  if (node == NULL || strlen(node) < 1 || strlen(node) > NODE_CHARACTERS)
    return false;
  for (; *node != 0; node++)
    if (*node < 0x20 || *node > 0x7e || *node == '"' || *node == '\\')
      return false;
  return true;
}

const char *twinlink_wrong_member(const struct twinlink_config *config)
{
  char name[TWINLINK_NAME_OCTETS];
  if (config->abi != TWINLINK_ABI || config->octets != sizeof *config)
    return config->abi != TWINLINK_ABI ? "abi" : "octets";
  if (!is_node_name(config->node) || config->epoch == 0)
    return config->epoch == 0 ? "epoch" : "node";
  if (config->flow_count > FLOWS || (config->flow_count > 0 && config->flows == NULL))
    return config->flow_count > FLOWS ? "flow_count" : "flows";
  for (uint32_t f = 0; f < config->flow_count; f++) {
    const char *wrong = wrong_in_flow(config->flows + f);
    if (wrong != NULL)
      return wrong;
    for (uint32_t other = 0; other < f; other++)
      if (strcmp(config->flows[f].name, config->flows[other].name) == 0)
        return "flows.name";
  }
  if (config->send_max_octets > TWINLINK_MAX_PAYLOAD || receive_max(config) > TWINLINK_MAX_PAYLOAD)
    return config->send_max_octets > TWINLINK_MAX_PAYLOAD ? "send_max_octets" : "receive_max_octets";
  if (config->receive_slots > WINDOW || (config->receive_flow != NULL && config->receive_slots < 1))
    return "receive_slots";
  bool named = config->receive_flow == NULL || flow_of(config->receive_flow, strlen(config->receive_flow), "", name);
  return named ? NULL : "receive_flow";
}

static int check_config(const struct twinlink_config *config)
{
  if (config == NULL || config->abi != TWINLINK_ABI || config->octets != sizeof *config)
    return TWINLINK_WRONG_ABI;
  return twinlink_wrong_member(config) == NULL ? TWINLINK_OK : TWINLINK_WRONG_CONFIG;
}

size_t twinlink_memory_octets(const struct twinlink_config *config)
{
  struct carving carving = {NULL, 0};
  if (check_config(config) != TWINLINK_OK)
    return 0;
  lay_out(&carving, config, receive_max(config));
  return carving.at;
}

static void init_flow(twinlink *link, twinlink_flow *flow, const struct twinlink_flow_config *config)
{
  flow->link = link;
  flow->epoch = link->config.epoch;
  flow->ring_octets = config->ring_octets & ~(uint64_t)15;
  flow->messages = config->messages;
  flow->max_octets = link->config.send_max_octets != 0 ? link->config.send_max_octets : TWINLINK_MAX_PAYLOAD;
  flow->reserve_octets = config->reserve_octets;
  flow->window_octets = config->window_octets != 0 ? config->window_octets : 134217728;
  flow->producer.reserved_at = UINT64_MAX;
  memset(flow->awaited, 0xff, sizeof flow->awaited); /* nothing */
  memcpy(flow->name, config->name, strlen(config->name) + 1);
  memcpy(flow->topic, "traffic/", 8);
  memcpy(flow->topic + 8, config->name, strlen(config->name) + 1);
  atomic_init(&flow->committed, 0), atomic_init(&flow->offered, 0);
  atomic_init(&flow->tail_position, 0), atomic_init(&flow->tail_octets, 0);
}

int twinlink_init(twinlink **made, void *memory, size_t octets, const struct twinlink_config *config, uint64_t mono_ns)
{
  int error = check_config(config);
  if (error != TWINLINK_OK)
    return error;
  size_t needed = twinlink_memory_octets(config);
  if (memory == NULL || octets < needed || (uintptr_t)memory % ALIGN != 0)
    return TWINLINK_SMALL_MEMORY;
  memset(memory, 0, needed);
  struct carving carving = {memory, 0};
  lay_out(&carving, config, receive_max(config));
  twinlink *link = memory;
  link->config = *config;
  link->config.receive_max_octets = receive_max(config);
  if (link->config.in_flight_octets == 0)
    link->config.in_flight_octets = 2097152;
  memcpy(link->node, config->node, strlen(config->node) + 1);
  if (config->receive_flow != NULL)
    memcpy(link->receive_flow, config->receive_flow, strlen(config->receive_flow) + 1);
  link->mono_ns = link->started_mono = link->heartbeat_mono = link->tick_mono = link->flow_tick_mono = mono_ns;
  link->drained_mono = mono_ns;
  link->last_ack = SIZE_MAX;
  link->number_origin = mono_ns - mono_ns % NUMBER_PERIOD_NS;
  for (uint32_t f = 0; f < config->flow_count; f++)
    init_flow(link, link->flows + f, config->flows + f);
  *made = link;
  return TWINLINK_OK;
}

const char *twinlink_error_text(int error)
{
  switch (error) {
  case TWINLINK_OK: return "no error";
  case TWINLINK_WRONG_ABI: return "the configuration is of another version of twinlink.h: set abi and octets, and compile again";
  case TWINLINK_WRONG_CONFIG: return "a member of the configuration is out of its range: twinlink_wrong_member() tells which";
  case TWINLINK_SMALL_MEMORY: return "the memory is too small or not aligned to 64 octets: ask twinlink_memory_octets()";
  default: return "unknown error";
  }
}

twinlink_flow *twinlink_flow_at(twinlink *link, uint32_t index)
{
  return index < link->config.flow_count ? link->flows + index : NULL;
}
