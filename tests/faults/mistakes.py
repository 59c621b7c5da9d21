"""Mistakes that the checker must see: each spoils the plain story in one way.

The plain story (tests/faults/story.py): 0-19 delivered, 20-24 a gap that both sides name, 25-44 delivered.
"""

from collections.abc import Callable

from .story import MS, Story, replaced
from .verdict import Fault


def got(story: Story) -> list[list[int]]:
    return story.receiver.got[story.sender.epoch]


def event(story: Story, side: str, name: str) -> tuple[list, int]:  # type: ignore[type-arg]
    events = (story.receiver if side == "receiver" else story.sender).events
    return events, next(index for index, report in enumerate(events) if report.name == name)


def change(story: Story, side: str, name: str, **fields: object) -> None:
    events, index = event(story, side, name)
    events[index] = replaced(events[index], **fields)


def drops_one(story: Story) -> None:
    del got(story)[7]


def drops_the_first(story: Story) -> None:
    del got(story)[0]


def drops_the_last(story: Story) -> None:
    got(story).pop()


def drops_the_second_half(story: Story) -> None:
    del got(story)[20:]


def delivers_nothing(story: Story) -> None:
    got(story).clear()


def delivers_twice_in_a_row(story: Story) -> None:
    got(story).insert(8, list(got(story)[7]))


def delivers_twice_much_later(story: Story) -> None:
    got(story).append([*got(story)[3][:2], story.now_ns])


def swaps_neighbours(story: Story) -> None:
    rows = got(story)
    rows[4], rows[5] = rows[5], rows[4]


def delivers_one_at_the_end(story: Story) -> None:
    got(story).append(got(story).pop(2))


def reverses_a_batch(story: Story) -> None:
    got(story)[10:20] = got(story)[19:9:-1]


def flips_a_bit(story: Story) -> None:
    got(story)[9][1] ^= 1 << 40


def exchanges_payloads(story: Story) -> None:
    rows = got(story)
    rows[1][1], rows[2][1] = rows[2][1], rows[1][1]


def shifts_numbers_by_one(story: Story) -> None:
    for row in got(story)[20:]:
        row[0] -= 1


def invents_a_message(story: Story) -> None:
    got(story).append([45, 12345, story.now_ns])


def invents_a_session(story: Story) -> None:
    story.receiver.got[77] = [[0, 1, story.now_ns]]


def delivers_before_sending(story: Story) -> None:
    got(story)[6][2] = story.sender.sends[6][2] - MS


def hides_the_gap(story: Story) -> None:
    events, index = event(story, "receiver", "Gap")
    del events[index]


def reports_the_gap_short_at_the_front(story: Story) -> None:
    change(story, "receiver", "Gap", first=21)


def reports_the_gap_short_at_the_end(story: Story) -> None:
    change(story, "receiver", "Gap", end=24)


def reports_the_gap_long_at_the_front(story: Story) -> None:
    change(story, "receiver", "Gap", first=19)


def reports_the_gap_long_at_the_end(story: Story) -> None:
    change(story, "receiver", "Gap", end=26)


def reports_the_gap_twice(story: Story) -> None:
    events, index = event(story, "receiver", "Gap")
    events.append(events[index])


def reports_the_gap_in_overlapping_parts(story: Story) -> None:
    change(story, "receiver", "Gap", end=23)
    events, index = event(story, "receiver", "Gap")
    events.append(replaced(events[index], first=22, end=25))


def reports_a_gap_where_none_is(story: Story) -> None:
    story.receiver.report(story.now_ns, "Gap", epoch=story.sender.epoch, first=30, end=32)


def reports_a_gap_of_the_future(story: Story) -> None:
    story.receiver.report(story.now_ns, "Gap", epoch=story.sender.epoch, first=45, end=50)


def reports_the_gap_on_another_flow(story: Story) -> None:
    change(story, "receiver", "Gap", flow="control")


def reports_the_gap_of_another_session(story: Story) -> None:
    change(story, "receiver", "Gap", epoch=99)


def reports_the_gap_late(story: Story) -> None:
    events, index = event(story, "receiver", "Gap")
    events[index].at_ns += 60_000 * MS


def sender_hides_the_loss(story: Story) -> None:
    events, index = event(story, "sender", "Lost")
    del events[index]


def sender_reports_too_little(story: Story) -> None:
    change(story, "sender", "Lost", end=24)


def sender_reports_too_much(story: Story) -> None:
    change(story, "sender", "Lost", end=27)


def sender_reports_twice(story: Story) -> None:
    events, index = event(story, "sender", "Lost")
    events.append(events[index])


def sender_reports_what_it_never_sent(story: Story) -> None:
    story.sender.report(story.now_ns, "Lost", first=45, end=46, reason="")


def sender_uses_a_number_twice(story: Story) -> None:
    for row in story.sender.sends[10:]:
        row[0] -= 1


def sender_skips_a_number(story: Story) -> None:
    for row in story.sender.sends[40:]:
        row[0] += 1


def claims_reordering_of_what_never_came(story: Story) -> None:
    story.receiver.report(story.now_ns, "Reordered", epoch=story.sender.epoch, sequence=22)


def repairs_late_and_keeps_the_gap(story: Story) -> None:
    got(story).append([22, story.sender.sends[22][1], story.now_ns])


def sender_calls_lost_what_was_acknowledged(story: Story) -> None:
    got(story).pop()
    story.receiver.report(story.now_ns, "Gap", epoch=story.sender.epoch, first=44, end=45)
    story.sender.report(story.now_ns, "Lost", first=44, end=45, reason="")


def flush_names_what_was_delivered(story: Story) -> None:
    story.sender.unsettled.append((30, 31))


def gives_up_with_room_to_spare(story: Story) -> None:
    story.sender.retention = 100_000


def rejects_the_gap_too(story: Story) -> None:
    story.receiver.report(story.now_ns, "Unclaimed", epoch=story.sender.epoch, first=20, end=25)


def rejects_what_it_delivers(story: Story) -> None:
    story.receiver.report(story.now_ns, "Unclaimed", epoch=story.sender.epoch, first=30, end=32)


def acknowledges_and_drops(story: Story) -> None:
    story.sender.acked[story.receiver.epoch].append((22, 23))
    hides_the_gap(story)


SPOILED: list[tuple[Callable[[Story], None], Fault]] = [
    (drops_one, Fault.UNDETECTED),
    (drops_the_first, Fault.UNDETECTED),
    (drops_the_last, Fault.TAIL),
    (drops_the_second_half, Fault.TAIL),
    (delivers_nothing, Fault.TAIL),
    (delivers_twice_in_a_row, Fault.DUPLICATE),
    (delivers_twice_much_later, Fault.DUPLICATE),
    (swaps_neighbours, Fault.REORDERED),
    (delivers_one_at_the_end, Fault.REORDERED),
    (reverses_a_batch, Fault.REORDERED),
    (flips_a_bit, Fault.CORRUPT),
    (exchanges_payloads, Fault.CORRUPT),
    (shifts_numbers_by_one, Fault.CORRUPT),
    (invents_a_message, Fault.PHANTOM),
    (invents_a_session, Fault.PHANTOM),
    (delivers_before_sending, Fault.TIME),
    (hides_the_gap, Fault.UNDETECTED),
    (reports_the_gap_short_at_the_front, Fault.UNDETECTED),
    (reports_the_gap_short_at_the_end, Fault.UNDETECTED),
    (reports_the_gap_long_at_the_front, Fault.FALSE_GAP),
    (reports_the_gap_long_at_the_end, Fault.FALSE_GAP),
    (reports_the_gap_twice, Fault.GAP_TWICE),
    (reports_the_gap_in_overlapping_parts, Fault.GAP_TWICE),
    (reports_a_gap_where_none_is, Fault.FALSE_GAP),
    (reports_a_gap_of_the_future, Fault.PHANTOM_GAP),
    (reports_the_gap_on_another_flow, Fault.UNDETECTED),
    (reports_the_gap_of_another_session, Fault.PHANTOM_GAP),
    (reports_the_gap_late, Fault.LATE_GAP),
    (sender_hides_the_loss, Fault.SENDER_UNAWARE),
    (sender_reports_too_little, Fault.SENDER_UNAWARE),
    (sender_reports_too_much, Fault.FALSE_LOST),
    (sender_reports_twice, Fault.LOST_TWICE),
    (sender_reports_what_it_never_sent, Fault.PHANTOM_LOST),
    (sender_uses_a_number_twice, Fault.NUMBERING),
    (sender_skips_a_number, Fault.NUMBERING),
    (claims_reordering_of_what_never_came, Fault.FALSE_REORDERED),
    (repairs_late_and_keeps_the_gap, Fault.REORDERED),
    (sender_calls_lost_what_was_acknowledged, Fault.FALSE_LOST),
    (flush_names_what_was_delivered, Fault.FALSE_LOST),
    (gives_up_with_room_to_spare, Fault.TOO_SOON),
    (rejects_the_gap_too, Fault.GAP_TWICE),
    (rejects_what_it_delivers, Fault.FALSE_GAP),
    (acknowledges_and_drops, Fault.ACKED_UNDELIVERED),
]

# Those that find their place in a story of any kind.
ANYWHERE: list[Callable[[Story], None]] = [drops_one, delivers_twice_in_a_row, swaps_neighbours, flips_a_bit]
