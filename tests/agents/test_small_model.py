"""A real model of 135 million parameters on the CPU calls a tool, held to its schema by a grammar."""

import pytest

from tests.parts import PartMissingError, python_of_llm
from tools.small_model.agent import answer
from tools.small_model.running import small_model


@pytest.mark.slow
@pytest.mark.programs
async def test_a_small_model_makes_a_valid_call_and_answers_from_its_result() -> None:
    try:
        python = python_of_llm()
    except PartMissingError as missing:
        pytest.skip(f"NO SMALL MODEL: {missing}")
    async with small_model(python) as url:
        result = await answer(url, "What is the weather in Oslo?")
    call, *_ = result.metadata["done"]
    assert (call["status"], result.reason) == ("completed", "answer_complete")
    assert result.metadata["usage"]["output_tokens"] > 0
