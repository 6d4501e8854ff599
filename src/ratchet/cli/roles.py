"""From the words of the command line to who does what: `rules`, `openai:MODEL@URL`, a profile, or `rules+` either."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ratchet.autoinstall.options import Roles
    from ratchet.policies.budget import Meter

RULES = "rules"

PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="POLICY",
        help="Who does everything: rules, openai:MODEL@BASE_URL, the name of a profile, or rules+MODEL (the model "
        "goes on where the rules give up).",
    ),
]
GoalPolicy = Annotated[
    str | None, typer.Option("--goal-policy", metavar="POLICY", help="Who sets the goals, if not --policy.")
]
BuilderPolicy = Annotated[str | None, typer.Option("--builder", metavar="POLICY", help="Who builds, if not --policy.")]
JudgePolicy = Annotated[
    str | None,
    typer.Option("--judge", metavar="MODEL", help="Who judges what only prose describes, if not --policy's model."),
]
MaxTokens = Annotated[int | None, typer.Option(min=1, metavar="N", help="Tokens that models may take in all.")]
MaxCost = Annotated[
    float | None,
    typer.Option(min=0.0, metavar="COST", help="What calls of models may cost, in the profile's currency."),
]
MaxSteps = Annotated[int, typer.Option(min=1, metavar="N", help="Actions of a model in one attempt.")]


def make_roles(
    policy: str,
    goal_policy: str | None,
    builder: str | None,
    judge: str | None,
    meter: Meter,
    on_text: Callable[[str], None],
) -> Roles:
    """Raises UsageError for what is no policy, and where the cost is limited and a model has no prices."""
    from ratchet.autoinstall.options import PolicyChoice, Roles
    from ratchet.policies.budget import require_prices
    from ratchet.policies.chat import ChatModel
    from ratchet.policies.profiles import parse_model

    models: dict[str, ChatModel] = {}

    def model(text: str) -> ChatModel:
        if text not in models:
            profile = parse_model(text)
            require_prices(meter.budget, profile)
            models[text] = ChatModel(profile, meter, on_text=on_text)
        return models[text]

    def choice(text: str) -> PolicyChoice:
        first, plus, rest = text.partition("+")
        if first != RULES:
            return PolicyChoice(rules=False, model=model(text))
        return PolicyChoice(rules=True, model=model(rest) if plus else None)

    chosen_judge = choice(judge if judge is not None else policy).model
    return Roles(choice(goal_policy or policy), choice(builder or policy), chosen_judge)
