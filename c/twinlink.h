/*
 * twinlink.h - a node of the twinlink protocol (docs/protocol.md) for programs in C: it sends flows, and receives one.
 *
 * No I/O, clock, thread, lock, allocation or system call: the caller supplies memory once, and then frames and times.
 *
 *   slot thread                     link thread
 *   twinlink_reserve                twinlink_receive(frame that arrived, time)
 *   twinlink_commit   -- ring -->   twinlink_on_time(time)
 *                                   twinlink_poll_transmit() -> frame to send, until there is none
 *
 * Each flow has one thread that sends on it.  It only writes to the flow's ring, which is lock-free and never makes it
 * wait.  All other functions belong to one thread, the link thread.  What a function returns is valid until that thread
 * makes its next call.
 *
 * Times are nanoseconds: mono_ns of a monotonic clock, now_ns Unix time.  A range extends from first to end, which is
 * not included.
 */
#ifndef TWINLINK_H
#define TWINLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TWINLINK_ABI 1u /* changes when a struct or the meaning of a function does, also of a driver's header */
#define TWINLINK_MAX_FLOWS 8u
#define TWINLINK_MAX_PEERS 16u
#define TWINLINK_MAX_PAYLOAD 16777216u
#define TWINLINK_HEADER_OCTETS 32u
#define TWINLINK_NAME_OCTETS 64u  /* of a flow's name with its final zero */
#define TWINLINK_TOPIC_OCTETS 72u /* of a topic with its final zero */

/* The symbols stay inside the program that compiles them in, unless it asks for a shared library. */
#if defined(__GNUC__) && !defined(TWINLINK_SHARED)
#define TWINLINK_API __attribute__((visibility("hidden")))
#elif defined(__GNUC__)
#define TWINLINK_API __attribute__((visibility("default")))
#else
#define TWINLINK_API
#endif

typedef struct twinlink twinlink;
typedef struct twinlink_flow twinlink_flow;

enum twinlink_error {
  TWINLINK_OK = 0,
  TWINLINK_WRONG_ABI = -1,     /* the header that the caller was compiled with is of another version */
  TWINLINK_WRONG_CONFIG = -2,  /* a member of the configuration is out of its range */
  TWINLINK_SMALL_MEMORY = -3   /* less than twinlink_memory_octets() says, or not aligned to 64 octets */
};

enum twinlink_event_kind {
  TWINLINK_PEER_UP = 1,   /* both directions work */
  TWINLINK_PEER_DOWN,     /* reason: silent, deaf, closed, restarted */
  TWINLINK_RESTARTED,     /* a new session, `first`, of the same node takes the place of this one */
  TWINLINK_LOST,          /* this peer will not get these messages, or is not known to have them; epoch 0: no peer will */
  TWINLINK_GAP,           /* these messages of the peer will not come */
  TWINLINK_MALFORMED      /* a frame was dropped; at most one event a second for each reason, `first` is the count */
};

struct twinlink_event {
  enum twinlink_event_kind kind;
  uint64_t epoch;     /* of the peer's session */
  const char *node;   /* its name, UTF-8; empty and not NULL where there is none, as flow and reason */
  const char *flow;
  uint64_t first;
  uint64_t end;
  const char *reason; /* valid during the call, as node and flow */
};

struct twinlink_message {
  uint64_t epoch; /* of the sender's session */
  uint64_t sequence;
  uint64_t sent_ns; /* by the sender's clock */
  const void *payload; /* valid during the call */
  size_t octets;
};

/* Both are called within a function of the link thread, and must neither call twinlink nor throw. */
typedef void twinlink_on_event(void *context, const struct twinlink_event *event);
typedef void twinlink_on_message(void *context, const struct twinlink_message *message);

struct twinlink_flow_config {
  const char *name;        /* [A-Za-z0-9][A-Za-z0-9._-]{0,62}, each once */
  size_t ring_octets;      /* messages are kept here until they are acknowledged, each with its header; at least 256,
                              below 2^60, or below 2^28 where size_t has 32 bits */
  uint32_t messages;       /* so many are kept or not consumed yet, at most; a power of two, 16 to 131072 */
  size_t reserve_octets;   /* kept free for new ones, at the cost of those kept for peers that are down; below ring_octets */
  uint64_t window_octets;  /* sent and not consumed yet, at most; 0: 134217728 */
};

struct twinlink_config {
  uint32_t abi;    /* TWINLINK_ABI */
  uint32_t octets; /* sizeof(struct twinlink_config) */
  const char *node; /* 1 to 255 printable characters of ASCII, without " and \ */
  uint64_t epoch; /* 64 random bits, drawn anew for each session, not 0 */
  const struct twinlink_flow_config *flows;
  uint32_t flow_count;
  uint32_t send_max_octets;  /* of a payload that is sent, at most 16777216; 0: that.  A longer one is dropped */
  uint64_t in_flight_octets; /* sent and not acknowledged yet, of all flows, at most; 0: 2097152 */
  const char *receive_flow;  /* NULL: none */
  uint32_t receive_max_octets; /* of a payload on it; what is longer is rejected; 0: 16499, a signed decision */
  uint32_t receive_slots;      /* so many messages are held while an earlier one is missing; 1 to 64 */
  twinlink_on_event *on_event; /* NULL: none, as the next one */
  twinlink_on_message *on_message;
  void *context; /* of both */
};

/* A frame to be sent: octets in one piece, and the topic, which a transport sends beside it. */
struct twinlink_frame {
  const char *topic;
  size_t topic_octets;
  const void *octets;
  size_t size;
};

struct twinlink_flow_stats {
  uint64_t sent;         /* numbers given out: messages offered, those that found no room included */
  uint64_t sent_octets;  /* of payloads, transmitted for the first time */
  uint64_t dropped;      /* found the ring full, or were longer than send_max_octets */
  uint64_t acknowledged; /* one for each message and peer, as are those lost */
  uint64_t lost;
  uint64_t retransmitted;
  uint64_t outstanding; /* kept: not acknowledged by every peer that is to get them */
  uint64_t unconfirmed; /* evicted, and not known to have arrived or not; one for each message and peer */
};

struct twinlink_stats {
  uint64_t received, duplicates, gaps; /* messages of the receive flow */
  uint64_t malformed;
  uint64_t peers_refused;    /* hellos of sessions for which there was no room */
  uint64_t control_dropped;  /* acks and the like for which there was no room; they are repeated when asked for */
  uint64_t in_flight_octets;
  uint64_t rtt_ns, rtt_min_ns; /* T4 - T1 of the last ack, and the least; 0: none yet */
  uint32_t peers_up;
};

/* Octets of memory for twinlink_init, a multiple of 64; 0: the configuration is wrong. */
TWINLINK_API size_t twinlink_memory_octets(const struct twinlink_config *config);

/* Makes a node in the caller's memory, which is the caller's again after its last call.  Strings are copied.
 * Returns TWINLINK_OK, or an error, with *link unchanged. */
TWINLINK_API int twinlink_init(twinlink **link, void *memory, size_t octets, const struct twinlink_config *config,
                               uint64_t mono_ns);

TWINLINK_API const char *twinlink_error_text(int error);

/* The member of the configuration that is out of its range, such as "flows.name"; NULL: none is. */
TWINLINK_API const char *twinlink_wrong_member(const struct twinlink_config *config);

/* The flow with this index in the configuration; NULL: there is none. */
TWINLINK_API twinlink_flow *twinlink_flow_at(twinlink *link, uint32_t index);

/* ---- Slot thread: one for each flow ---- */

/* Room for a payload of up to so many octets, to be written by the caller until the next call for this flow.  NULL: the
 * ring is full, or send_max_octets is less: the message is counted, and its number announced as lost.  It may be called
 * before a peer is up and after twinlink_close().  A later call replaces a reservation that was not committed. */
TWINLINK_API void *twinlink_reserve(twinlink_flow *flow, size_t octets);

/* Sends what was written to the last reservation, at most as much as was reserved; now_ns: when it was produced, which
 * the receiver gets as its sent_ns.  Returns its number; UINT64_MAX: nothing is reserved. */
TWINLINK_API uint64_t twinlink_commit(twinlink_flow *flow, size_t octets, uint64_t now_ns);

/* Both, with a copy of the payload; false: as NULL above. */
TWINLINK_API bool twinlink_send(twinlink_flow *flow, const void *payload, size_t octets, uint64_t now_ns);

/* ---- Link thread ---- */

/* A frame that has arrived; `topic` needs no final zero. */
TWINLINK_API void twinlink_receive(twinlink *link, const char *topic, size_t topic_octets, const void *frame,
                                   size_t octets, uint64_t mono_ns, uint64_t now_ns);

/* To be called at twinlink_next_timeout(), or earlier; drained_mono_ns: when the transport was last read to its end. */
TWINLINK_API void twinlink_on_time(twinlink *link, uint64_t mono_ns, uint64_t now_ns, uint64_t drained_mono_ns);
TWINLINK_API uint64_t twinlink_next_timeout(const twinlink *link);

/* The next frame to send; false: none may leave now.  The frame counts as sent. */
TWINLINK_API bool twinlink_poll_transmit(twinlink *link, struct twinlink_frame *frame, uint64_t mono_ns,
                                         uint64_t now_ns);

/* Ends the session: what is not acknowledged counts as lost.  Poll and send what is left: it tells the peers.  What the
 * slot thread commits from now on is not counted: let it end before. */
TWINLINK_API void twinlink_close(twinlink *link, uint64_t mono_ns, uint64_t now_ns);

TWINLINK_API void twinlink_get_stats(const twinlink *link, struct twinlink_stats *stats);
TWINLINK_API void twinlink_get_flow_stats(const twinlink_flow *flow, struct twinlink_flow_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
