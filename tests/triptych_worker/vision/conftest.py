from __future__ import annotations

import pytest
from vision.families import Family, load_family


@pytest.fixture(scope="session", params=["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "smolvlm"])
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    return load_family(request.param, tmp_path_factory.mktemp(request.param))
