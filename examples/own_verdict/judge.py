"""What is right, and what is worth something, for this task."""


def is_right(completions, ground_truth, **kwargs):
    """Give each returned answer a score in [0, 1]; None leaves one open.

    ``ground_truth`` is the field "answer" of the problem, None without one. Other arguments: prompts, workflows (their
    code), id, domain, dataset. An async function may ask a model.
    """
    return [score(answer, truth) for answer, truth in zip(completions, ground_truth, strict=True)]


def score(answer, truth):
    if answer.strip() == truth:
        return 1.0
    return 0.5 if truth in answer.replace(".", " ").split() else 0.0  # right, but with words around it


def brevity(completions, **kwargs):
    """Compute a term of the reward: here ``completions`` are the workflows that the policy wrote."""
    return [1.0 if len(text) < 600 else 0.0 for text in completions]
