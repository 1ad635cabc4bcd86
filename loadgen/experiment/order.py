"""In which order the arms take their turns."""


def order(arms: int, repeats: int) -> tuple[int, ...]:
    """Arm numbers by block: A B B A A B B A ...: every other round runs backwards.

    Linear drift of the machine over an even number of rounds then adds the same to every arm and cancels in
    their ratio (counterbalancing; D. R. Cox, Planning of Experiments, 1958, ch. 14).
    """
    forward = tuple(range(arms))
    return tuple(arm for turn in range(repeats) for arm in (forward if turn % 2 == 0 else forward[::-1]))


def repeat_of(sequence: tuple[int, ...], position: int) -> int:
    """How many earlier blocks of the same arm there are before `position`."""
    return sequence[:position].count(sequence[position])
