"""From accounts to the answers: sums by stage and device, marks, bounds, cross-check."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kdwatch.ledger.accounts import Account, Accounts
from kdwatch.ledger.device import DeviceTrack
from kdwatch.ledger.stages import Stage
from kdwatch.ledger.types import Bound, DeviceTotals, StageDevice, StageTotals, Totals

if TYPE_CHECKING:
    from kdwatch.ledger.core import Ledger

GROUPS = ("gpu", "cpu", "dram", "ram_estimated", "other")
"""Components of `energy_j`, by kind of device."""
MISMATCH = 0.10
"""A counter and integrated power that differ by more are a warning (design, accounting protocol)."""
MISMATCH_S = 10.0
"""Windows shorter than this are not cross-checked: their edges alone may differ by more."""
EDGE_SIGMAS = 2.0
"""Standard deviations of an edge that its bound takes."""

ByDevice = dict[str, Accounts]


def build_totals(ledger: Ledger, end: float) -> Totals:
    """The whole snapshot at run time `end`."""
    accounts: ByDevice = {key: track.accounts_at(track.end(end)) for key, track in ledger.devices.items()}
    counted = counted_devices(ledger)
    warnings = list(ledger.warnings.found)
    devices = tuple(_device(ledger, key, accounts[key], end, key in counted) for key in ledger.devices)
    total = known_sum(d.total_j for d in devices if d.key in counted)
    stages = tuple(_stage(ledger, stage, accounts, counted, total, end) for stage in ledger.book.stages.values())
    warnings += derived_warnings(ledger, stages)
    return Totals(
        t=end,
        status=ledger.status,
        stages=stages,
        devices=devices,
        unattributed_j=known_sum(d.unattributed_j for d in devices if d.key in counted),
        total_j=total,
        warnings=tuple(warnings),
        quality=ledger.quality,
        teacher_reuse=_teacher_reuse(ledger, total),
        budget_j=ledger.budget_j,
        power_w=known_sum(d.power_w for d in devices if d.key in counted),
        idle_w=dict(ledger.idle_w),
        exit_code=ledger.exit_code,
    )


def known_sum(values: Iterable[float | None]) -> float | None:
    """Sum of the known values; None if none is known."""
    known = [v for v in values if v is not None]
    return math.fsum(known) if known else None


def counted_devices(ledger: Ledger) -> set[str]:
    """Keys whose energy enters totals. Left out, and shown beside: estimated RAM where dram is measured; a
    process-tree share where the whole CPU is there; CPU and memory where a module's counter holds them; packages that
    repeat another one's counter."""
    known = [t for t in ledger.devices.values() if t.known]
    module = any(t.spec.get("scope") == "module" for t in known)
    dram = any(t.kind == "dram" for t in known)
    whole_cpu = any(t.kind == "cpu" and t.spec.get("scope") != "process_tree" for t in known)

    def beside(track: DeviceTrack) -> bool:
        if track.key in ledger.mirrors or (track.kind in ("cpu", "dram", "ram_estimated") and module):
            return True
        if track.kind == "ram_estimated":
            return dram
        return track.kind == "cpu" and track.spec.get("scope") == "process_tree" and whole_cpu

    return {key for key, track in ledger.devices.items() if not beside(track)}


def source_of(track: DeviceTrack, account: Account | None) -> str:
    """Where an account's energy comes from."""
    if track.source in ("estimated", "imported"):
        return track.source
    if track.counter.raw is None:
        return "integrated"
    if account is not None and account.joules > 0 and account.bridged_j > 0.5 * account.joules:
        return "integrated"
    return "counter"


def coverage_of(account: Account) -> float | None:
    """Share of an account's time with readings; None for an empty window."""
    if account.time_s <= 0.0:
        return None
    share = min(1.0, 1.0 - account.uncovered_s / account.time_s)
    return share if share > 1e-9 else 0.0


def flags_of(track: DeviceTrack, account: Account) -> tuple[str, ...]:
    """Faults of this device in this window."""
    flags = list(account.flags)
    if track.source == "imported" and (track.spec.get("details") or {}).get("estimated"):
        flags.append("estimated")
    if account.uncovered_s > 0.01 and account.uncovered_s > 1e-3 * account.time_s:
        flags.append("gap")
    if track.counter.raw is not None and account.bridged_j > 0.001 * account.joules:
        flags.append("bridged")
    if _mismatch(track, account) is not None:
        flags.append("counter_mismatch")
    return tuple(dict.fromkeys(flags))


def _mismatch(track: DeviceTrack, account: Account) -> float | None:
    """Relative difference between counter and power where it is too large, over the time that has both."""
    if source_of(track, account) != "counter" or account.uncovered_s > 0.0 or account.bridged_j > 0.0:
        return None
    if account.power_s - account.dark_s < MISMATCH_S or account.power_s < 0.99 * account.time_s:
        return None
    counted = account.joules - account.dark_j
    if counted <= 0.0:
        return None
    nearest = min((account.power_j, account.average_j), key=lambda j: abs(j - counted) if j > 0 else math.inf)
    if nearest <= 0.0:
        return None
    period_s = max(track.power.period_s, track.average.period_s)
    if abs(nearest - counted) <= (account.peak_w or 0.0) * period_s:
        return None  # one step of power between two samples may err by so much
    difference = nearest / counted - 1.0
    return difference if abs(difference) > MISMATCH else None


def _device(ledger: Ledger, key: str, accounts: Accounts, end: float, counted: bool) -> DeviceTotals:
    track = ledger.devices[key]
    own = accounts.of
    whole = Account()
    for account in own.values():
        whole.joules += account.joules
        whole.bridged_j += account.bridged_j
        whole.time_s += account.time_s
        whole.uncovered_s += account.uncovered_s
        for code in flags_of(track, account):
            whole.flag(code)
    known = track.known
    return DeviceTotals(
        key=key,
        id=str(track.spec.get("id") or key),
        name=str(track.spec.get("name") or key),
        kind=track.kind,
        total_j=math.fsum(a.joules for a in own.values()) if known else None,
        unattributed_j=own[None].joules if known and None in own else (0.0 if known else None),
        source=source_of(track, whole),
        coverage=coverage_of(whole) if known else None,
        scope=str(track.spec.get("scope") or track.kind),
        power_w=track.newest_power(end),
        flags=tuple(whole.flags),
        counted=counted,
    )


def _stage_device(ledger: Ledger, track: DeviceTrack, account: Account | None, counted: bool) -> StageDevice:
    spec = track.spec
    identity, name = str(spec.get("id") or track.key), str(spec.get("name") or track.key)
    scope = str(spec.get("scope") or track.kind)
    if account is None or not track.known:
        return StageDevice(
            track.key, identity, name, track.kind, energy_j=None, mean_w=None, peak_w=None,
            source=source_of(track, None), coverage=0.0 if account is not None else None, scope=scope,
            flags=(), bound_j=None, counted=counted,
        )  # fmt: skip
    coverage = coverage_of(account)
    covered = account.time_s * (coverage or 0.0)
    unknown = coverage == 0.0 and account.joules == 0.0
    energy = None if unknown else account.joules
    bound = None if unknown else _bound(track, account)
    idle = ledger.idle_w.get(track.key)
    return StageDevice(
        track.key,
        identity,
        name,
        track.kind,
        energy_j=energy,
        mean_w=energy / covered if energy is not None and covered > 1e-9 else None,
        peak_w=account.peak_w,
        source=source_of(track, account),
        coverage=coverage,
        scope=scope,
        flags=flags_of(track, account),
        bound_j=bound.total_j if bound else None,
        bound=bound,
        net_energy_j=max(0.0, energy - idle * account.time_s) if energy is not None and idle is not None else None,
        counted=counted,
    )


def _bound(track: DeviceTrack, account: Account) -> Bound | None:
    systematic = track.spec.get("systematic", 0.05)
    if not isinstance(systematic, int | float) or isinstance(systematic, bool):
        return None
    highest = max(account.peak_w or 0.0, track.largest_w if account.uncovered_s > 0 else 0.0)
    return Bound(
        edge_j=EDGE_SIGMAS * math.sqrt(max(0.0, account.variance)),
        gap_j=account.uncovered_s * highest if account.uncovered_s > 0.01 else 0.0,
        systematic_j=abs(float(systematic)) * account.joules,
    )


def _stage(
    ledger: Ledger, stage: Stage, accounts: ByDevice, counted: set[str], total: float | None, end: float
) -> StageTotals:
    ran = bool(stage.windows)
    claimed = [t for t in ledger.devices.values() if stage.claims(t.spec) or stage.name in accounts[t.key].of]
    devices = tuple(
        _stage_device(ledger, t, accounts[t.key].of.get(stage.name), t.key in counted) for t in claimed if ran
    )
    kept = [d for d in devices if d.counted]
    energy = energy_groups(kept)
    if not ran:
        none = 0.0 if stage.status == "reused" else None
        energy = {**energy, "total": none, "measured": none, "estimated": none, "missing": []}
    duration = stage.duration_at(end)
    tokens = stage.progress.get("tokens")
    total_j = energy["total"]
    net = [d.net_energy_j for d in kept]
    bounds = [d.bound_j for d in kept if d.energy_j is not None]
    return StageTotals(
        name=stage.name,
        kind=stage.kind,
        status=stage.status,
        exit_code=stage.exit_code,
        start_s=stage.windows[0][0] if ran else None,
        end_s=stage.windows[-1][1] if ran else None,
        duration_s=duration,
        phases_s=stage.phases_at(end),
        reused_from=stage.reused_from,
        tokens=tokens,
        input_tokens=stage.progress.get("input_tokens"),
        step=stage.progress.get("step"),
        total_steps=stage.progress.get("total_steps"),
        loss=stage.progress.get("loss"),
        devices=devices,
        energy_j=energy,
        net_energy_j=known_sum(net) if net and None not in net else None,
        bound_j=known_sum(bounds) if bounds and None not in bounds else None,
        tokens_per_s=tokens / duration if ran and tokens and duration else None,
        j_per_token=total_j / tokens if ran and tokens and total_j is not None else None,
        mean_w=known_sum(d.mean_w for d in kept),
        share=total_j / total if total and total_j is not None else None,
        phase=stage.phase if stage.running else None,
        shared_j=math.fsum(accounts[key].shared_j.get(stage.name, 0.0) for key in counted),
        artifacts=tuple(stage.artifacts),
        cpu_s=stage.cpu_s,
        cpu_process_j=process_tree_j(ledger, stage, energy["cpu"], duration),
    )


def process_tree_j(ledger: Ledger, stage: Stage, cpu_j: float | None, duration: float | None) -> float | None:
    """Share of the CPU's energy by the stage's own CPU time, exited children included: an estimate.

    E_cpu x cpu_s / (duration x CPUs), at most E_cpu. None where CPU time, number of CPUs or energy is unknown.
    """
    cpus = ledger.cpus
    if stage.cpu_s is None or cpu_j is None or not cpus or not duration:
        return None
    return cpu_j * min(1.0, stage.cpu_s / (duration * cpus))


def energy_groups(devices: Iterable[StageDevice]) -> dict[str, Any]:
    """The contract's `energy_j` of counted devices."""
    groups: dict[str, float | None] = dict.fromkeys(GROUPS)
    measured: list[float] = []
    estimated: list[float] = []
    missing: list[str] = []
    for d in devices:
        group = d.kind if d.kind in GROUPS else "other"
        if d.energy_j is None:
            missing.append(group)
            continue
        groups[group] = (groups[group] or 0.0) + d.energy_j
        modelled = d.source == "estimated" or "estimated" in d.flags  # an imported log may hold a model's energy
        (estimated if modelled else measured).append(d.energy_j)
    known = [*measured, *estimated]
    if groups["other"] is None:  # a module-scope counter holds processor and memory as well
        missing += ["cpu"] if groups["cpu"] is None else []
        missing += ["dram"] if groups["dram"] is None and groups["ram_estimated"] is None else []
    return {
        **groups,
        "total": math.fsum(known) if known else None,
        "measured": math.fsum(measured) if measured else (0.0 if known else None),
        "estimated": math.fsum(estimated) if estimated else (0.0 if known else None),
        "missing": [g for g in GROUPS if g in missing],
    }


def _teacher_reuse(ledger: Ledger, total: float | None) -> dict[str, Any] | None:
    if ledger.teacher_reuse is None:
        return None
    joules, count = ledger.teacher_reuse["teacher_j"], ledger.teacher_reuse["reuse_count"]
    share = joules / count if joules is not None and isinstance(count, int) and count > 0 else None
    return {"estimated": None, **ledger.teacher_reuse, "teacher_j_share": share}


def derived_warnings(ledger: Ledger, stages: tuple[StageTotals, ...]) -> list[dict[str, Any]]:
    """Warnings that follow from the numbers."""
    found: list[dict[str, Any]] = []
    texts = {
        "gap": ("gap", "part of the time has no reading: the energy there is unknown"),
        "reset": ("counter_reset", "the energy counter went back: bridged by power where there is some"),
        "frozen": ("counter_frozen", "the energy counter stood still: bridged by power where there is some"),
        "counter_mismatch": ("counter_mismatch", "counter and integrated power differ by more than 10 %"),
        "discarded": ("discarded", "readings that the device cannot have were left out"),
    }
    for stage in stages:
        for device in stage.devices:
            for flag in device.flags:
                if flag in texts:
                    code, text = texts[flag]
                    found.append(
                        {
                            "code": code,
                            "text": f"{stage.name}, {device.name}: {text}",
                            "stage": stage.name,
                            "device": device.key,
                        }
                    )
    estimated = sorted({t.kind for t in ledger.devices.values() if t.source == "estimated" and t.known})
    if estimated:
        found.append({"code": "estimated", "text": f"{', '.join(estimated)}: energy from a model, not measured"})
    return found
