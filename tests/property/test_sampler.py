from hypothesis import given
from hypothesis import strategies as st

from grpo.data.sampler import ProblemSampler
from verifiers.problem import Problem


def make_sampler(sizes, weights, prompts_per_step, seed):
    sets = [
        [
            Problem(id=f"{index}/{row}", prompt="p", verifier="math", reference="1", source="s")
            for row in range(size)
        ]
        for index, size in enumerate(sizes)
    ]
    return ProblemSampler(sets=sets, weights=weights, prompts_per_step=prompts_per_step, seed=seed)


settings = {
    "sizes": st.lists(st.integers(1, 20), min_size=1, max_size=4),
    "weights": st.lists(st.floats(0.1, 10), min_size=4, max_size=4),
    "prompts_per_step": st.integers(1, 12),
    "seed": st.integers(0, 5),
}


@given(**settings, steps=st.integers(1, 12))
def test_any_step_can_be_drawn_first(sizes, weights, prompts_per_step, seed, steps):
    arguments = (sizes, weights[: len(sizes)], prompts_per_step, seed)
    walked = make_sampler(*arguments)
    drawn = [walked.draw(step) for step in range(1, steps + 1)]
    assert make_sampler(*arguments).draw(steps) == drawn[-1]
    assert all(len(problems) == prompts_per_step for problems in drawn)


@given(**settings)
def test_shares_follow_the_weights(sizes, weights, prompts_per_step, seed):
    weights = weights[: len(sizes)]
    sampler = make_sampler(sizes, weights, prompts_per_step, seed)
    drawn = [problem for step in range(1, 9) for problem in sampler.draw(step)]
    for index, weight in enumerate(weights):
        share = sum(problem.id.startswith(f"{index}/") for problem in drawn)
        assert abs(share - len(drawn) * weight / sum(weights)) <= len(weights)


@given(size=st.integers(1, 30), prompts_per_step=st.integers(1, 7), seed=st.integers(0, 5))
def test_an_epoch_visits_every_problem_once(size, prompts_per_step, seed):
    sampler = make_sampler([size], [1.0], prompts_per_step, seed)
    steps = -(-3 * size // prompts_per_step)
    drawn = [problem.id for step in range(1, steps + 1) for problem in sampler.draw(step)]
    for epoch in range(3):
        assert len(set(drawn[epoch * size : (epoch + 1) * size])) == size
