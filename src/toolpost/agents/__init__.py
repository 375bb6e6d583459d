"""Agents: plan and reason with a language model. Every tool call goes through the runtime. See docs/reference.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.contracts.lazy import lazy_attributes

if TYPE_CHECKING:
    from toolpost.agents.agent import Agent
    from toolpost.agents.channels import Reply
    from toolpost.agents.conversation import Budget, PlanningHints
    from toolpost.agents.main_agent import MainAgent
    from toolpost.agents.planner import ReactPlanner
    from toolpost.agents.reflection import PostTaskReflection, PostTaskReflector
    from toolpost.agents.results import (
        CallEnded,
        CallProgress,
        CallStarted,
        ModelReplied,
        ModelText,
        PlannerEvent,
        PlannerFinish,
        PlannerPause,
        PlannerQuestion,
        RunFinished,
        RunPaused,
    )
    from toolpost.agents.steps import ActionResult, Actor, PlanStep, Reflection, TaskContext
    from toolpost.agents.tasks import Task
    from toolpost.contracts.questions import Answer
    from toolpost.toolbox.views import SearchView

__getattr__ = lazy_attributes(
    "toolpost.agents",
    {
        "agents.agent": ["Agent"],
        "agents.channels": ["Reply"],
        "agents.conversation": ["Budget", "PlanningHints"],
        "agents.main_agent": ["MainAgent"],
        "agents.planner": ["ReactPlanner"],
        "agents.reflection": ["PostTaskReflection", "PostTaskReflector"],
        "agents.results": [
            *("CallEnded", "CallProgress", "CallStarted", "ModelReplied", "ModelText", "PlannerEvent", "PlannerFinish"),
            *("PlannerPause", "PlannerQuestion", "RunFinished", "RunPaused"),
        ],
        "agents.steps": ["ActionResult", "Actor", "PlanStep", "Reflection", "TaskContext"],
        "agents.tasks": ["Task"],
        "contracts.questions": ["Answer"],
        "toolbox.views": ["SearchView"],
    },
)

__all__ = [
    "ActionResult",
    "Actor",
    "Agent",
    "Answer",
    "Budget",
    "CallEnded",
    "CallProgress",
    "CallStarted",
    "MainAgent",
    "ModelReplied",
    "ModelText",
    "PlanStep",
    "PlannerEvent",
    "PlannerFinish",
    "PlannerPause",
    "PlannerQuestion",
    "PlanningHints",
    "PostTaskReflection",
    "PostTaskReflector",
    "ReactPlanner",
    "Reflection",
    "Reply",
    "RunFinished",
    "RunPaused",
    "SearchView",
    "Task",
    "TaskContext",
]


def __dir__() -> list[str]:
    return list(__all__)
