"""Findings: a sentence vanishes when the records say otherwise."""

import functools
from dataclasses import replace

import pytest

from fednb import ROOT
from fednb.errors import ReportError
from fednb_lab import findings
from fednb_lab.cells import cells_of
from fednb_lab.claims import claims_file, claims_of
from fednb_lab.findings import Filler

# findings that say that there is no difference, or give a number without a direction
WITHOUT_DIRECTION = {
    "fedprox-is-fedavg",
    "moon-start",
    "fedproto-readings",
    "fedplcc-order",
    "side-tuning-noise",
    "side-twins",
    "fednova-on-digits",
    "fednova-momentum",
}


recorded = functools.cache(cells_of)  # of the committed records


def changed(cell, change):
    """The same cell with other values in its runs."""
    runs = [
        run if run.value is None else run._replace(value=change(run.value)) for run in cell.runs
    ]
    return replace(cell, runs=tuple(runs))


def test_who_was_ahead_and_is_behind_now_is_not_told_to_be_ahead():
    """With all numbers turned round each finding with a direction falls."""
    turned = Filler(
        lambda table: [changed(cell, lambda value: 100 - value) for cell in recorded(table)], ROOT
    )
    findings = claims_file().findings.values()
    borne_out = {one.name for one in findings if one.holds and turned.fact(one)}
    assert borne_out == WITHOUT_DIRECTION
    fallen = next(one for one in findings if one.surprise and one.holds)
    assert "do not bear out" in turned.sentence(fallen)


@pytest.mark.parametrize(
    ("name", "table", "row"),
    [
        ("fedprox-is-fedavg", "moon-1-short", "FedProx"),
        ("moon-ahead-of-fedavg", "moon-1-short", "MOON"),  # then the claim's verdict is another
        ("fedproto-two-numbers", "fedproto-2", "FedProto, stdev 2"),
        ("fedproto-readings", "digits-fedproto-readings", "prototypes weighted with images"),
        ("fedssc-share-all", "digits-fedssc-parts", "without l_moon"),
        ("side-prior", "side-digits-beta-0.5", "FedPrior"),
        ("side-twins", "side-domains", "FedPrior"),
        ("fednova-momentum", "digits-fednova-unequal", "FedNova"),
    ],
)
def test_no_difference_is_told_only_where_there_is_none(name, table, row):
    """A row that ends ten points higher takes the sentence away."""

    def cells(of):
        if of != table:
            return recorded(of)
        return [
            changed(cell, lambda value: value + 10) if cell.row == row else cell
            for cell in recorded(of)
        ]

    finding = claims_file().findings[name]
    assert Filler(recorded, ROOT).fact(finding) and not Filler(cells, ROOT).fact(finding)


def test_a_sentence_asks_for_the_verdict_of_a_claim_by_its_name_in_figures():
    finding = claims_file().findings["moon-ahead-of-fedavg"]
    says = finding._replace(says="{{ verdict('MOON − SCAFFOLD') }}", holds="")
    assert Filler(recorded, ROOT).sentence(says) in ("reversed", "cannot tell", "confirmed")
    with pytest.raises(ReportError, match="There is no claim 'MOON − Nobody'"):
        Filler(recorded, ROOT).sentence(says._replace(says="{{ verdict('MOON − Nobody') }}"))


def test_claims_that_are_handed_in_are_not_judged_again(monkeypatch):
    judged = claims_of("MOON", recorded)
    monkeypatch.setattr(findings, "claims_of", pytest.fail)
    finding = claims_file().findings["moon-ahead-of-fedavg"]  # whose truth hangs on a verdict
    assert Filler(recorded, ROOT, {"MOON": judged}).fact(finding)
