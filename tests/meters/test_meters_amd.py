"""AMD GPUs through amdsmi: a stand-in for the module, with the shapes and oddities of the real one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import naive
import pytest

from kdwatch.meters import amd
from kdwatch.meters.discover import Discovery, add_gpus


class SmiError(Exception):
    pass


class Smi:
    """Stands in for the module amdsmi; a GPU is a dict of what each call returns, None where it raises."""

    AmdSmiException = SmiError

    def __init__(self, *gpus: dict[str, Any]) -> None:
        self.gpus = gpus
        self.open = 0

    def amdsmi_init(self) -> None:
        self.open += 1

    def amdsmi_shut_down(self) -> None:
        self.open -= 1

    def amdsmi_get_processor_handles(self) -> list[int]:
        return list(range(len(self.gpus)))

    def _of(self, handle: int, name: str) -> Any:
        value = self.gpus[handle].get(name)
        if value is None:
            raise SmiError(f"{name}: not supported")
        return value

    def amdsmi_get_gpu_device_uuid(self, handle: int) -> str:
        return f"c4ff74a1-0000-1000-80ff-{handle:012d}"

    def amdsmi_get_gpu_asic_info(self, handle: int) -> dict[str, Any]:
        return {"market_name": "AMD Instinct MI300X", "asic_serial": self.gpus[handle].get("serial", f"0x{handle}")}

    def amdsmi_get_energy_count(self, handle: int) -> dict[str, Any]:
        return {"energy_accumulator": self._of(handle, "steps"), "counter_resolution": 15.3, "timestamp": 1}

    def amdsmi_get_power_info(self, handle: int) -> dict[str, Any]:
        return {"current_socket_power": self._of(handle, "watts"), "average_socket_power": "N/A"}

    def amdsmi_get_power_cap_info(self, handle: int) -> dict[str, Any]:
        return {"power_cap": 750_000_000}


def meter(smi: Smi, **environment: str) -> amd.AmdMeter:
    return amd.AmdMeter(amd.find(environment, smi).sensors)


@pytest.mark.fault(45)
def test_45_the_accumulator_is_multiplied_by_its_resolution() -> None:
    """65628 steps of 15.3 microjoules are 1.004 J."""
    (reading,) = meter(Smi({"steps": 65628, "watts": 320})).poll()
    right = pytest.approx(1.004, abs=0.0005)
    assert reading.counter_j == right
    assert naive.accumulator_joules(65628) != right
    assert reading.power_w == 320


def test_a_gpu_says_what_it_is() -> None:
    (device,) = meter(Smi({"steps": 1, "watts": 320})).devices
    assert (device.key, device.name, device.kind, device.scope) == ("a0", "AMD Instinct MI300X", "gpu", "gpu")
    assert device.source == "counter" and device.limit_w == 750.0


def test_46_a_second_die_that_reads_nothing_is_its_cards_and_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """MI250: two dies of one card, the second reads 0 W: one device of scope card, no doubling, no 0 W."""
    found = amd.find({}, Smi({"steps": 9, "watts": 500, "serial": "0xaa"}, {"watts": 0, "serial": "0xaa"}))
    assert [(s.device.key, s.device.scope) for s in found.sensors] == [("a0", "card")]
    assert "second die" in found.notes[0]
    two = amd.find({}, Smi({"steps": 9, "watts": 500, "serial": "0xaa"}, {"steps": 8, "watts": 400, "serial": "0xbb"}))
    assert [s.device.scope for s in two.sensors] == ["gpu", "gpu"]


@pytest.mark.parametrize("watts", [0, "N/A", None, 2**64 - 1, True])
def test_what_is_no_power_is_none(watts: Any) -> None:
    gpu = {"steps": 100, "watts": watts}
    (reading,) = meter(Smi(gpu)).poll()
    assert reading.power_w is None and reading.counter_j is not None


def test_a_gpu_without_a_counter_is_integrated_and_one_that_gives_nothing_is_named() -> None:
    found = amd.find({}, Smi({"watts": 200}, {}))
    assert [(s.device.key, s.device.source) for s in found.sensors] == [("a0", "integrated")]
    assert "gives neither" in found.notes[0]


def test_a_gpu_that_hangs_from_the_start_costs_no_other_its_place() -> None:
    over = threading.Event()
    hung: list[bool] = []

    class Hanging(Smi):
        def amdsmi_get_power_info(self, handle: int) -> dict[str, Any]:
            if handle == 0:
                hung.append(over.wait(60.0))
            return super().amdsmi_get_power_info(handle)

    found = amd.find({}, Hanging({"steps": 1, "watts": 100}, {"steps": 5, "watts": 100}), limit_s=0.2)
    assert not hung, "the GPU still hangs when the others are known"
    over.set()
    assert [s.device.key for s in found.sensors] == ["a1"]
    assert found.notes == ["GPU 0 gives no answer within 0.2 s: left out"]


def test_a_gpu_that_fails_in_mid_run_is_a_gap_and_comes_back() -> None:
    gpu: dict[str, Any] = {"steps": 100, "watts": 300}
    now = [0.0]
    smi = Smi(gpu, {"steps": 5, "watts": 100})
    found = amd.AmdMeter(amd.find({}, smi, lambda: now[0]).sensors)
    gpu.clear()
    for _ in range(3):
        now[0] += 0.1
        first, second = sorted(found.poll(), key=lambda r: r.key)
        assert (first.counter_j, first.power_w) == (None, None) and second.power_w == 100
    gpu.update(steps=200, watts=310)
    now[0] += 2.0
    assert sorted(found.poll(), key=lambda r: r.key)[0].power_w == 310
    assert [(e.key, e.what) for e in found.drain_events()] == [("a0", "lost"), ("a0", "recovered")]
    found.close()
    found.close()
    assert smi.open == 0


@pytest.mark.parametrize(
    ("variables", "keys"),
    [
        ({}, ["a0", "a1", "a2"]),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, ["a0", "a2"]),
        ({"ROCR_VISIBLE_DEVICES": "1"}, ["a1"]),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_visible_devices(variables: dict[str, str], keys: list[str]) -> None:
    smi = Smi(*({"steps": 1, "watts": 100} for _ in range(3)))
    assert [d.key for d in meter(smi, **variables).devices] == keys


def test_discovery_uses_it_where_the_driver_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kfd = tmp_path / "kfd"
    monkeypatch.setattr(amd, "KFD", kfd)
    monkeypatch.setattr(amd, "load", lambda: Smi({"steps": 1, "watts": 100}))
    found = Discovery()
    add_gpus(found, select_gpus="")
    assert not [s for s in found.sensors if s.stream == "amd"], "no AMD driver, no word of AMD"
    kfd.touch()
    add_gpus(found, select_gpus="")
    assert [(s.status, s.text) for s in found.sensors if s.stream == "amd"] == [("ok", "1 GPUs")]
    assert [m.name for m in found.meters] == ["amd"]
    found.close()


def test_a_library_that_cannot_load_leaves_a_clear_line_and_a_clean_stdout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(name: str) -> Any:
        print("Unable to find libamd_smi.so library")
        raise KeyError("libamd_smi.so")

    monkeypatch.setattr(amd, "KFD", tmp_path)
    monkeypatch.setattr(amd, "import_module", broken)
    found = Discovery()
    add_gpus(found, select_gpus="")
    (status,) = (s for s in found.sensors if s.stream == "amd")
    assert status.status == "unsupported" and "energy is missing" in status.text and "ROCm" in str(status.fix)
    assert capsys.readouterr().out == ""


def test_apple_silicon_is_named_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    found = Discovery()
    add_gpus(found, select_gpus="")
    (status,) = (s for s in found.sensors if s.stream == "apple")
    assert status.status == "unsupported" and "missing" in status.text


def test_a_driver_that_refuses_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    smi = Smi()
    monkeypatch.setattr(smi, "amdsmi_init", _refuse)
    found = amd.find({}, smi)
    assert found.sensors == [] and found.problem == "amdsmi: no driver"


def _refuse() -> None:
    raise SmiError("no driver")
