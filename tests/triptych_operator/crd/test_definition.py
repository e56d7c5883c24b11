from pathlib import Path

import yaml
from triptych_operator.crd.definition import FILE_NAME, definition, text

CRDS = Path(__file__).parents[3] / "crds"


def test_the_committed_file_is_what_the_models_say() -> None:
    assert (CRDS / FILE_NAME).read_text(encoding="utf-8") == text()


def test_the_text_is_the_definition_written_out_without_anchors() -> None:
    assert yaml.safe_load(text()) == definition()
    assert "&id" not in text()


def test_the_resource_has_its_short_name_category_and_status() -> None:
    spec = yaml.safe_load(text())["spec"]
    assert (spec["names"]["shortNames"], spec["names"]["categories"]) == (["mms"], ["triptych"])
    [version] = spec["versions"]
    assert version["subresources"] == {"status": {}}
    columns = [column["name"] for column in version["additionalPrinterColumns"]]
    assert columns == [
        "Ready", "Topology", "E", "P", "D", "F", "G", "Epoch", "Limiting", "URL", "Reason", "Age"
    ]  # fmt: skip


def test_the_api_server_keeps_what_it_owns() -> None:
    [version] = yaml.safe_load(text())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    assert schema["properties"]["metadata"] == {"type": "object"}
    assert schema["required"] == ["spec"]
    assert "observedGeneration" in schema["properties"]["status"]["properties"]
