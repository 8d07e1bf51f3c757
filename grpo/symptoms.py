"""What is wrong with a run that does not learn: rules over its last steps, each with its cure."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from grpo.values import ScoredGroup, ScoredRollout
from verifiers.verdict import Status

Metrics = Mapping[str, float]
History = Sequence[Metrics]

_LONGEST_WINDOW = 100
_QUIET_STEPS = 50
_NUM_EXAMPLES = 3
_EXAMPLE_LENGTH = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """Something that a person should look at.

    Attributes:
        name: Of the rule that found it.
        step: After which it was found.
        text: What was seen, in one sentence, and what to do about it.
        examples: A few completions that show it, a line each.
    """

    name: str
    step: int
    text: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of trouble.

    Attributes:
        name: A word for logs and tests.
        window: Steps that are looked at together.
        find: From the metrics of that many steps to what is wrong and its cure; None when all is
            well.
        shows: Whether a completion is an example of it.
    """

    name: str
    window: int
    find: Callable[[History], str | None]
    shows: Callable[[ScoredRollout], bool] = lambda _: False


class SymptomWatch:
    """Looks at every step, and tells of each kind of trouble once in a while.

    Args:
        quiet_steps: Steps for which a symptom that was told is not told again.
    """

    def __init__(self, quiet_steps: int = _QUIET_STEPS) -> None:
        self._history: deque[Metrics] = deque(maxlen=_LONGEST_WINDOW)
        self._quiet_until: dict[str, int] = {}
        self._quiet_steps = quiet_steps

    def look(self, step: int, metrics: Metrics, groups: Sequence[ScoredGroup]) -> list[Symptom]:
        """What is to be told after this step.

        Args:
            step: From 1.
            metrics: The step's.
            groups: The step's, from which examples are taken.
        """
        self._history.append(metrics)
        history = list(self._history)
        found: list[Symptom] = []
        for rule in RULES:
            if len(history) < rule.window or step < self._quiet_until.get(rule.name, 0):
                continue
            if text := rule.find(history[-rule.window :]):
                self._quiet_until[rule.name] = step + self._quiet_steps
                examples = _pick_examples(groups, rule.shows)
                found.append(Symptom(name=rule.name, step=step, text=text, examples=examples))
        return found


def _pick_examples(
    groups: Sequence[ScoredGroup], shows: Callable[[ScoredRollout], bool]
) -> tuple[str, ...]:
    """One completion of each of the first groups that have one."""
    shown = (next(filter(shows, group.members), None) for group in groups)
    return tuple(_describe(member) for member in shown if member is not None)[:_NUM_EXAMPLES]


def _describe(member: ScoredRollout) -> str:
    verdict, text = member.verdict, member.rollout.text
    end = text if len(text) <= _EXAMPLE_LENGTH else f"...{text[-_EXAMPLE_LENGTH:]}"
    why = f"{verdict.reason}, {verdict.detail}" if verdict.detail else str(verdict.reason)
    return f"{member.rollout.problem_id}: {verdict.status} ({why}), answer {end!r}"


def _mean(history: History, name: str) -> float | None:
    """Over the steps that have the metric, if those are most of them."""
    values = [metrics[name] for metrics in history if name in metrics]
    return statistics.fmean(values) if 2 * len(values) > len(history) else None


def _find_constant_reward(history: History) -> str | None:
    names = [name for name in history[-1] if name.startswith("rewards/")]
    for name in sorted(names):
        values = {metrics.get(name) for metrics in history}
        if len(values) == 1:
            verifier = name.removeprefix("rewards/").removesuffix("/mean")
            return (
                f"the verifier {verifier} has given every completion of the last {len(history)} "
                f"steps the same reward, {values.pop():g}, so nothing is learned from it. If that "
                "is the reward of a wrong answer: compare the answers below with what the "
                "verifier reads (`verigrad verify --gold ... --answer ...`), check the references "
                "(`verigrad data check`), or begin with easier problems."
            )
    return None


def _find_no_signal(history: History) -> str | None:
    share = _mean(history, "frac_reward_zero_std")
    if share is None or share < 0.9:
        return None
    rate = _mean(history, "pass_rate") or 0.0
    cure = (
        "the problems are too easy for this policy: take harder ones"
        if rate > 0.5
        else "the problems are too hard for this policy: take easier ones, raise num_generations, "
        "or check that the prompt asks for the answer in the form that the verifier reads"
    )
    return (
        f"{share:.0%} of the groups of the last {len(history)} steps had no spread of rewards "
        f"(pass rate {rate:.2f}), and such a group teaches nothing; {cure}."
    )


def _find_truncation(history: History) -> str | None:
    share = _mean(history, "completions/clipped_ratio")
    if share is None or share < 0.3:
        return None
    return (
        f"{share:.0%} of the completions of the last {len(history)} steps were cut off at "
        "max_completion_length, and what is cut off has rarely an answer: raise it, or check that "
        "the policy knows when to stop (its end-of-text token, the chat template)."
    )


def _find_no_answer(history: History) -> str | None:
    share = _mean(history, f"verdicts/{Status.NO_ANSWER}")
    if share is None or share < 0.5:
        return None
    return (
        f"in {share:.0%} of the completions of the last {len(history)} steps the verifier found "
        "no answer to judge: check that the prompt says where the answer goes "
        "(data.prompt_template, data.system_prompt) and that completions are long enough."
    )


def _find_unverified(history: History) -> str | None:
    shares = [_mean(history, f"verdicts/{status}") for status in (Status.ERROR, Status.BAD_GOLD)]
    share = sum(share for share in shares if share is not None)
    if share < 0.05:
        return None
    return (
        f"{share:.0%} of the completions of the last {len(history)} steps could not be verified "
        "and are left out of the batch: the reasons are below and in rollouts/."
    )


def _find_repetition(history: History) -> str | None:
    share = _mean(history, "completions/distinct_fraction")
    rate = _mean(history, "pass_rate")
    if share is None or share > 0.3 or (rate is not None and rate > 0.9):
        return None
    return (
        f"on average only {share:.0%} of a group's completions in the last {len(history)} steps "
        "differ from each other: the policy has collapsed, or temperature, top_p or top_k leave "
        "it no choice. A lower learning_rate, a higher epsilon_high or a beta > 0 prevent a "
        "collapse; go back to a checkpoint from before it."
    )


def _find_kl(history: History) -> str | None:
    kl = _mean(history, "kl")
    if kl is None or kl < 1.0:
        return None
    return (
        f"the policy is {kl:.2f} nats a token away from its reference, on average of the last "
        f"{len(history)} steps: it is hardly the same model any more. Lower learning_rate or "
        "raise beta, and go back to a checkpoint from before."
    )


def _find_clipping(history: History) -> str | None:
    share = _mean(history, "clip_ratio/region_mean")
    if share is None or share < 0.3:
        return None
    return (
        f"{share:.0%} of the tokens of the last {len(history)} steps were clipped: updates are too "
        "large. Lower learning_rate, or take fewer updates from each batch."
    )


def _find_mismatch(history: History) -> str | None:
    name = "sampling/sampling_logp_difference/mean"
    half = len(history) // 2
    early, late = _mean(history[:half], name), _mean(history[half:], name)
    if early is None or late is None or late < max(0.01, 2 * early):
        return None
    return (
        f"engines and learner disagree more and more on the same tokens: {early:.4f} nats on "
        f"average of {half} steps, now {late:.4f}. Compute both in the same precision "
        "(rollout.dtype)."
    )


def _find_plateau(history: History) -> str | None:
    half = len(history) // 2
    early = [m["pass_rate"] for m in history[:half] if "pass_rate" in m]
    late = [m["pass_rate"] for m in history[half:] if "pass_rate" in m]
    if len(early) < half // 2 or len(late) < half // 2:
        return None
    rise = statistics.fmean(late) - statistics.fmean(early)
    noise = (statistics.variance(early) / len(early) + statistics.variance(late) / len(late)) ** 0.5
    if rise > 2 * noise or statistics.fmean(late) > 0.9:
        return None
    return (
        f"the pass rate has not risen over the last {len(history)} steps ({rise:+.3f}, with a "
        f"standard error of {noise:.3f}). Look at frac_reward_zero_std (is there a signal?), "
        "grad_norm and learning_rate (is there an update?), completions/clipped_ratio (are there "
        "answers?), and read a few groups (`verigrad view`)."
    )


def _is_wrong(member: ScoredRollout) -> bool:
    return member.verdict.verified and member.verdict.status is not Status.CORRECT


RULES = (
    Rule(name="constant_reward", window=10, find=_find_constant_reward, shows=_is_wrong),
    Rule(name="no_signal", window=10, find=_find_no_signal, shows=_is_wrong),
    Rule(
        name="truncation",
        window=5,
        find=_find_truncation,
        shows=lambda member: member.rollout.truncated,
    ),
    Rule(
        name="no_answer",
        window=5,
        find=_find_no_answer,
        shows=lambda member: member.verdict.status is Status.NO_ANSWER,
    ),
    Rule(
        name="unverified",
        window=3,
        find=_find_unverified,
        shows=lambda member: not member.verdict.verified,
    ),
    Rule(name="repetition", window=5, find=_find_repetition, shows=lambda _: True),
    Rule(name="kl", window=5, find=_find_kl),
    Rule(name="clipping", window=5, find=_find_clipping),
    Rule(name="mismatch", window=40, find=_find_mismatch),
    Rule(name="plateau", window=_LONGEST_WINDOW, find=_find_plateau, shows=_is_wrong),
)
