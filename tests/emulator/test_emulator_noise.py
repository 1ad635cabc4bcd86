import math

import numpy as np
import pytest
from numpy.typing import NDArray

from loadgen.emulator.noise import Noise, NoiseSpec


def logs(
    spec: NoiseSpec, *, steps: int = 4000, every_s: float = 1.0, seed: int = 1, machine: int = 0
) -> NDArray[np.float64]:
    """The logarithms of the stretches of `steps` steps of a millisecond, `every_s` apart."""
    noise = Noise(spec, seed=(seed,), machine_seed=(machine,))
    return np.array([math.log(noise.stretched(1e-3, number * every_s) / 1e-3) for number in range(steps)])


def test_no_noise_changes_nothing() -> None:
    noise = Noise(NoiseSpec(), seed=(1,))
    assert [noise.stretched(0.3, at) for at in (0.0, 5.0, 5000.0)] == [0.3] * 3


def test_steps_spread_as_said_and_do_not_depend_on_each_other() -> None:
    found = logs(NoiseSpec(step=0.05))
    assert found.std() == pytest.approx(0.05, rel=0.1)
    assert abs(found.mean()) < 0.005
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 0.06


def test_a_start_is_one_factor_until_the_process_ends() -> None:
    starts = np.array([logs(NoiseSpec(start=0.03), steps=2, seed=seed) for seed in range(600)])
    assert starts[:, 0] == pytest.approx(starts[:, 1])
    assert starts[:, 0].std() == pytest.approx(0.03, rel=0.15)


def test_processes_on_one_machine_wander_together() -> None:
    spec = NoiseSpec(wander=0.04, wander_s=60)
    one, other, elsewhere = (logs(spec, seed=seed, machine=machine) for seed, machine in ((1, 7), (2, 7), (1, 8)))
    assert one == pytest.approx(other)
    assert abs(np.corrcoef(one, elsewhere)[0, 1]) < 0.6
    late = Noise(spec, seed=(3,), machine_seed=(7,))
    assert math.log(late.stretched(1e-3, 2000.0) / 1e-3) == pytest.approx(one[2000])


def test_wandering_is_slow_and_stays_within_its_spread() -> None:
    found = logs(NoiseSpec(wander=0.04, wander_s=60), steps=40_000, every_s=6.0)
    assert found.std() == pytest.approx(0.04, rel=0.2)
    assert np.corrcoef(found[10:], found[:-10])[0, 1] == pytest.approx(math.exp(-1), abs=0.1)


def test_drift_is_linear_in_the_logarithm_of_machine_time() -> None:
    found = logs(NoiseSpec(drift_per_hour=0.1), steps=3, every_s=1800.0)
    assert found == pytest.approx([0.0, 0.05, 0.1])


def test_hiccups_come_at_their_rate_with_their_mean_length() -> None:
    spec = NoiseSpec(hiccups_per_minute=6, hiccup_s=0.05)
    noise, now_s, lost = Noise(spec, seed=(1,)), 0.0, []
    while now_s < 12_000.0:
        took_s = noise.stretched(0.1, now_s)
        if took_s > 0.1:
            lost.append(took_s - 0.1)
        now_s += took_s
    assert len(lost) == pytest.approx(1200, rel=0.12)
    assert sum(lost) / len(lost) == pytest.approx(0.05, rel=0.15)


def test_a_hiccup_while_nothing_runs_delays_nobody() -> None:
    noise = Noise(NoiseSpec(hiccups_per_minute=60, hiccup_s=1.0), seed=(1,))
    assert noise.stretched(1e-6, 10_000.0) == pytest.approx(1e-6)


def test_the_same_seed_gives_the_same_noise() -> None:
    spec = NoiseSpec(step=0.05, start=0.01, wander=0.02, drift_per_hour=0.1, hiccups_per_minute=10)
    assert logs(spec).tolist() == logs(spec).tolist()
    assert logs(spec).tolist() != logs(spec, seed=2).tolist()
