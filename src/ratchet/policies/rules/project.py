"""What kind of project a survey describes: the questions that goals, plans and the audit all ask."""

from __future__ import annotations

from packaging.requirements import InvalidRequirement, Requirement

from ratchet.records import Survey


def installable(survey: Survey) -> bool:
    """Whether the project is made to be installed, and not a folder of scripts."""
    return survey.first("project-name") is not None or survey.first("build-backend") is not None


def needed_distributions(survey: Survey) -> list[str]:
    """What the project needs at run time without conditions; of one that cannot be installed, what its requirements
    files name."""
    facts = survey.of("requirement")
    if not installable(survey):
        facts += tuple(f for f in survey.of("group-requirement") if f.group.startswith("file:"))
    names: dict[str, None] = {}
    for fact in facts:
        try:
            requirement = Requirement(fact.value)
        except InvalidRequirement:
            continue
        if requirement.marker is None:
            names[requirement.name] = None
    return list(names)[:40]
