from grpo.data.digest import compute_digest
from grpo.data.overlap import describe_overlaps, find_overlaps
from verifiers.problem import Problem

TAIL = "\nReason step by step over as many lines as you like, then give the final number alone."
LONG = "A farmer has twelve geese and sells three of them at each of two markets in May"


def make(name, *questions):
    return [
        Problem(
            id=f"{name}/{i}", prompt=q + TAIL, verifier="math", reference="1", source=f"{name}:{i}"
        )
        for i, q in enumerate(questions)
    ]


def test_the_same_question_and_a_long_run_of_words_are_found_and_named():
    train = make("train", "What is two and two?", f"{LONG}. How many are left?", "Name a prime.")
    held = make("held", "what is TWO, and two", f"In 1900 {LONG}, and dies.", "Is nine a prime?")
    found = find_overlaps({"t": train}, {"h": held})["h"]
    assert [(o.held_out, o.trained, o.kind) for o in found] == [
        ("held:0", "train:0", "same"),
        ("held:1", "train:1", "words"),
    ]
    line = describe_overlaps("h", found, 3)
    for fragment in ("2 of 3", "1 the same, 1 in part", "held:0 is train:0"):
        assert fragment in line


def test_instructions_that_all_questions_share_are_no_overlap():
    train = make("train", "What is one?", "What is three?")
    held = make("held", "What is two?", "Count to four.")
    assert find_overlaps({"t": train}, {"h": held}) == {}


def test_messages_are_compared_by_the_last_question():
    shots = ({"role": "user", "content": "Name a prime."}, {"role": "assistant", "content": "2"})
    chat = Problem(
        id="c",
        prompt=(*shots, {"role": "user", "content": "Is nine prime?"}),
        verifier="math",
        reference="1",
        source="chat:0",
    )
    train = make("train", "Name a prime number.") + make("more", "Is nine prime?")
    assert find_overlaps({"t": train}, {"h": [chat]})["h"][0].trained == "more:0"


def test_a_digest_knows_questions_and_references_but_not_places():
    one, again, other = make("a", "1+1"), make("b", "1+1"), make("a", "1+2")
    assert compute_digest(one) == compute_digest(again) != compute_digest(other)
