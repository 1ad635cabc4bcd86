"""What hangs together in a plan: requests that wait for one another."""

from collections.abc import Sequence

from loadgen.records.planned import Request


def sessions(requests: Sequence[Request]) -> list[tuple[Request, ...]]:
    """The requests as sessions, each in plan order, in the order of their first requests.

    Two requests are of one session if one waits for the other (`after`), however many stand between; a request that
    waits for none and that none waits for is a session by itself.
    """
    places = {request.index: place for place, request in enumerate(requests)}
    head = list(range(len(requests)))
    for place, request in enumerate(requests):
        for index in request.after or ():
            if index in places:
                first, second = sorted((_head(head, place), _head(head, places[index])))
                head[second] = first
    found: dict[int, list[Request]] = {}
    for place, request in enumerate(requests):
        found.setdefault(_head(head, place), []).append(request)
    return [tuple(members) for members in found.values()]


def _head(head: list[int], place: int) -> int:
    while head[place] != place:
        head[place] = head[head[place]]
        place = head[place]
    return place
