"""What the papers claim (``data/claims.yaml``), judged where each claim was made."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from scipy import stats

from fednb import ROOT, data
from fednb.errors import ReportError, check, require_known
from fednb.leads import LEVEL, MIN_SEEDS, quantile
from fednb.notebooks import notebooks
from fednb.settings import Deviation
from fednb_lab.cells import Cell, CellsOf
from fednb_lab.leads import Comparison, Lead, Word, as_family, compare_at, word_for


class _FromFile(BaseModel):
    """An entry of the file: what it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Place(_FromFile):
    """Where runs for a claim are looked for, or a printed lead: two rows of a table."""

    table: str
    ahead: str
    behind: str
    # where the table has several; of several columns the mean, seed by seed
    column: str | tuple[str, ...] | None = None


class ClaimEntry(_FromFile):
    """A claim as the file has it; ``ahead``, ``behind``, ``column`` hold where a place has none."""

    claim: str  # a sentence
    where: str  # in the paper
    runs: tuple[Place, ...]  # where runs are looked for, the paper's own setting first
    short: str = ""  # its name in figures; without one it is in none
    main: bool = False  # whether it stands on the report's first page
    reason: str = ""  # what to keep in mind
    # where the paper prints another number for the same
    printed_too: tuple[Place, ...] = Field((), alias="printed too")

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, content: dict[str, Any]) -> dict[str, Any]:
        rest = dict(content)
        usual = {name: rest.pop(name) for name in ("ahead", "behind", "column") if name in rest}
        for name in ("runs", "printed too"):
            named = [{"table": one} if isinstance(one, str) else one for one in rest.get(name, ())]
            rest[name] = [{**usual, **one} for one in named]
        return rest


def _is_there(notebook: str) -> str:
    known = [path.stem for path in notebooks(extras=True)]
    if notebook not in known:
        raise ValueError(f"there is no notebook {notebook!r}; there are {', '.join(known)}")
    return notebook


NotebookName = Annotated[str, AfterValidator(_is_there)]


class PaperClaims(_FromFile):
    """What the file has of a paper."""

    notebook: NotebookName
    claims: tuple[ClaimEntry, ...]


class ForestLine(Place):
    """A line of a finding's picture: how far one row is ahead of another."""

    label: str  # in words, such as "CIFAR-10, 20 rounds"


class Finding(_FromFile):
    """A result in words, whose numbers records fill in: see `fednb_lab.findings`."""

    name: str
    notebook: NotebookName
    says: str  # a template, as are the next three
    more: tuple[str, ...] = ()  # its other numbers, line by line: a notebook folds them
    fact: str = ""  # the same in one short sentence, for lists
    holds: str = ""  # an expression over records that is true as long as the sentence is
    forest: tuple[ForestLine, ...] = ()  # its picture: a line for each difference
    # who is ahead on the right of the picture, and who on the left, where the rows have other names
    sides: tuple[str, str] | None = None
    against: tuple[str, ...] = ()  # more tables that could speak against it, and that it names
    surprise: bool = False  # whether the report opens with it

    @property
    def text(self) -> str:
        """All that it says and asks of records, such as to look for names of tables in it."""
        asked = f"{{{{ {self.holds or 'true'} }}}}"
        return "\n".join([self.says, *self.more, self.fact, asked])

    @property
    def evidence(self) -> tuple[str, ...]:
        """The tables of its picture, and the others that could speak against it."""
        return tuple(dict.fromkeys([*(line.table for line in self.forest), *self.against]))


class ClaimsFile(NamedTuple):
    """``data/claims.yaml``."""

    papers: dict[str, PaperClaims]
    findings: dict[str, Finding]  # by name; the first one of a notebook is its headline


@functools.cache
def claims_file() -> ClaimsFile:
    """Read what the papers claim and what was found; pydantic's errors name what is wrong."""
    content = yaml.safe_load((ROOT / "data" / "claims.yaml").read_text(encoding="utf-8"))
    findings: dict[str, Finding] = {}
    for notebook, of_notebook in content.pop("findings").items():
        for name, described in of_notebook.items():
            check(name not in findings, f"Two findings are called {name}: rename one.", ReportError)
            found = {"name": name, "notebook": notebook, **described}
            findings[name] = Finding.model_validate(found)
    papers = TypeAdapter(dict[str, PaperClaims]).validate_python(content)
    return ClaimsFile(papers, findings)


@dataclass(frozen=True)
class Claim:
    """What a paper says, and what was run for it."""

    entry: ClaimEntry
    comparisons: list[Comparison]  # one for each of its places, the paper's own setting first
    printed: tuple[float, ...] = ()  # the printed leads, in the direction of the claim
    # that of `decisive`, with a p that is corrected for the paper's claims; else no lead
    lead: Lead = field(default_factory=Lead)

    @property
    def in_its_setting(self) -> Comparison | None:
        """The runs at the claim's own data, setting and length, where there are most seeds."""
        there = [one for one in self.comparisons if one.lead.seeds and not self.not_the_papers(one)]
        return max(there, key=lambda one: one.lead.seeds, default=None)

    @property
    def decisive(self) -> Comparison | None:
        """The comparison that the claim is judged by; None with fewer than `MIN_SEEDS` seeds."""
        found = self.in_its_setting
        return found if found is not None and found.lead.seeds >= MIN_SEEDS else None

    @property
    def beside(self) -> list[Comparison]:
        """All others with runs: shorter, narrower, or on other data; they decide nothing."""
        own = self.in_its_setting
        return [one for one in self.comparisons if one.lead.seeds and one is not own]

    @property
    def first(self) -> Comparison:
        """What stands for the claim: its own setting, else what was run, else what could be."""
        return self.in_its_setting or (self.beside or self.comparisons)[0]

    @property
    def word(self) -> Word:
        """One of seven words, by the comparison that decides among the paper's other claims."""
        return word_for(self.lead, self.printed)

    @property
    def is_ahead_alone(self) -> bool:
        """Whether it would be ahead if it were the paper's only claim, and is not among them."""
        lead = self.lead
        if self.word not in (Word.OPEN, Word.NOT_SEEN) or lead.mean is None or lead.diverged:
            return False
        return lead.mean > 0 and not lead.holds_zero

    @property
    def word_if_both_corrected(self) -> Word:
        """The word if the interval for the printed lead were as strict as that for being ahead.

        It is Bonferroni's, for as many comparisons as the claim stands among.
        """
        lead = self.lead
        if lead.seeds < MIN_SEEDS:
            return self.word
        strict = stats.t.ppf(1 - (1 - LEVEL) / (2 * lead.among), lead.seeds - 1)
        wider = lead.half_width * float(strict) / quantile(lead.seeds)
        return word_for(lead._replace(half_width=wider), self.printed)

    def not_the_papers(self, comparison: Comparison) -> list[str | Deviation]:
        """List what is not the paper's about it: data, and settings unless they are embedded."""
        own = self.comparisons[0].ahead.job.settings.dataset
        dataset = comparison.ahead.job.settings.dataset
        found: list[str | Deviation] = []
        if dataset != own:
            found.append(data.info_of(dataset).title)
        elif comparison.ahead.notes:
            found.append("other images")
        if dataset not in data.EMBEDDED:
            found += comparison.deviations
        return found


def claims_of(paper: str, of: CellsOf) -> list[Claim]:
    """Judge the claims of a paper as one family: what decides one of them is in it."""
    papers = claims_file().papers
    require_known("There are no claims of", paper, papers, ReportError)
    claims = []
    for i, entry in enumerate(papers[paper].claims):
        try:
            own = [_compare_at(place, of) for place in entry.runs]
            others = [_compare_at(place, of) for place in entry.printed_too]
        except ReportError as error:
            where = f"data/claims.yaml, {paper}, claim {i + 1}"
            raise ReportError(f"{where}: {error}") from error
        claims.append(Claim(entry, own, _printed_leads(own, others)))
    decisive = {i: claim.decisive for i, claim in enumerate(claims) if claim.decisive is not None}
    for i, comparison in as_family(decisive).items():
        claims[i] = replace(claims[i], lead=comparison.lead)
    return claims


def cells_among(tables: Mapping[str, list[Cell]]) -> CellsOf:
    """Give what finds the cells of one of these tables; a `ReportError` for any other."""

    def of(name: str) -> list[Cell]:
        require_known("there is no table", name, tables, ReportError)
        return tables[name]

    return of


def _compare_at(place: Place, of: CellsOf) -> Comparison:
    return compare_at(of(place.table), place.ahead, place.behind, place.column)


def _printed_leads(own: Sequence[Comparison], others: Sequence[Comparison]) -> tuple[float, ...]:
    """The first one that is printed for the claim, and those printed elsewhere in the paper."""
    printed = [comparison.printed for comparison in own if comparison.printed is not None][:1]
    printed += [comparison.printed for comparison in others if comparison.printed is not None]
    return tuple(dict.fromkeys(round(number, 6) for number in printed))


def count_words(claims: Sequence[Claim]) -> dict[Word, int]:
    """Count how many claims have each word, in the order of the words."""
    words = [claim.word for claim in claims]
    return {word: words.count(word) for word in Word}
